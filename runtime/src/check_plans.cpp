#include "checks.h"
#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

using runtime::Error;

/// Looks for a number among those of the elements before `end`.
template <typename NumberOf>
bool is_earlier(size_t end, uint32_t number, NumberOf number_of) {
  for (size_t i = 0; i < end; ++i) {
    if (number_of(i) == number) {
      return true;
    }
  }
  return false;
}

/**
 * Whether numbers come again, at no cost as long as they ascend, as they do in
 * files from our exporter.
 */
class Ascending {
 public:
  template <typename NumberOf>
  bool repeats(size_t i, NumberOf number_of) {
    const uint32_t number = number_of(i);
    if (i == 0 || number > highest_) {
      highest_ = number;
      return false;
    }
    return is_earlier(i, number, number_of);
  }

 private:
  uint32_t highest_ = 0;
};

class PlanCheck {
 public:
  PlanCheck(const ProgramReader& program, size_t m, Finding* finding)
      : arenas_(program.arenas()),
        plan_(program.plan(m)),
        m_(m),
        finding_(finding) {}

  Error check_bindings() const {
    Ascending memory_ids;
    for (size_t b = 0; b < plan_.num_bindings(); ++b) {
      Error error = check_memory_id(b, &memory_ids);
      if (error == Error::Ok) {
        error = check_arena(b);
      }
      if (error == Error::Ok) {
        error = check_accesses(b);
      }
      if (error != Error::Ok) {
        return error;
      }
    }
    return Error::Ok;
  }

 private:
  template <typename... Parts>
  void at(Parts... parts) const {
    write_path(finding_, "execution_plan[", uint64_t{m_}, "]", parts...);
  }

  template <typename... Parts>
  void at_binding(size_t b, Parts... parts) const {
    at(".arena_bindings[", uint64_t{b}, "]", parts...);
  }

  Error check_memory_id(size_t b, Ascending* memory_ids) const {
    const uint32_t id = plan_.binding(b).memory_id();
    at_binding(b, ".memory_id");
    if (id == 0 || id >= plan_.num_buffer_sizes()) {
      // A plan without the vector still has its reserved entry.
      const size_t end = plan_.num_buffer_sizes();
      return refuse(finding_, "expected 1 to ", uint64_t{end > 0 ? end : 1},
                    " (exclusive) but found ", id);
    }
    if (memory_ids->repeats(
            b, [this](size_t i) { return plan_.binding(i).memory_id(); })) {
      return refuse(finding_, "expected a memory id bound once but found ", id,
                    " again");
    }
    return Error::Ok;
  }

  Error check_arena(size_t b) const {
    const BindingReader binding = plan_.binding(b);
    if (binding.arena() >= arenas_.num_arenas()) {
      at_binding(b, ".arena");
      return refuse(finding_, "expected an index below ",
                    uint64_t{arenas_.num_arenas()}, " but found ",
                    binding.arena());
    }
    const ArenaReader arena = arenas_.arena(binding.arena());
    const uint32_t id = binding.memory_id();
    const int64_t planned = plan_.buffer_size(id);
    if (planned < 0 ||
        (planned != 0 && static_cast<uint64_t>(planned) != arena.size())) {
      at(".non_const_buffer_sizes[", id, "]");
      return refuse(finding_, "expected 0 or the arena's ", arena.size(),
                    " bytes but found ", planned);
    }
    return check_device(arena, id);
  }

  Error check_device(const ArenaReader& arena, uint32_t memory_id) const {
    const DeviceName expected{arena.device_type(), arena.device_index()};
    DeviceName found{0, 0};
    plan_.buffer_device(memory_id, &found.type, &found.index);
    if (found.type == expected.type && found.index == expected.index) {
      return Error::Ok;
    }
    at(".non_const_buffer_device");
    return refuse(finding_, "expected the device ", expected, " of arena ",
                  Name{arena.name()}, " for memory id ", memory_id,
                  " but found ", found);
  }

  Error check_accesses(size_t b) const {
    const BindingReader binding = plan_.binding(b);
    const size_t num_slots = arenas_.arena(binding.arena()).num_slots();
    Ascending slots;
    for (size_t i = 0; i < binding.num_accesses(); ++i) {
      const AccessReader access = binding.access(i);
      if (access.slot() >= num_slots) {
        at_binding(b, ".accesses[", uint64_t{i}, "].slot");
        return refuse(finding_, "expected an index below ", uint64_t{num_slots},
                      " but found ", access.slot());
      }
      if (slots.repeats(i,
                        [&](size_t j) { return binding.access(j).slot(); })) {
        at_binding(b, ".accesses[", uint64_t{i}, "].slot");
        return refuse(finding_, "expected a slot named once but found ",
                      access.slot(), " again");
      }
      if (access.mode() < 0 || access.mode() > 2) {
        at_binding(b, ".accesses[", uint64_t{i}, "].mode");
        return refuse(
            finding_,
            "expected 0 (read), 1 (write) or 2 (read_write) but found ",
            access.mode());
      }
    }
    return Error::Ok;
  }

  const ArenasReader arenas_;
  const PlanReader plan_;
  const size_t m_;
  Finding* const finding_;
};

}  // namespace

Error check_plan(const ProgramReader& program, size_t plan, Finding* finding) {
  const Error error = PlanCheck(program, plan, finding).check_bindings();
  return error != Error::Ok ? error : check_tensors(program, plan, finding);
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

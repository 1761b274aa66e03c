#include "checks.h"
#include "element_type.h"
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

/// Index of the last slot that begins at or before an offset, plus one.
size_t slots_up_to(const ArenaReader& arena, uint64_t offset) {
  size_t first = 0;
  size_t count = arena.num_slots();
  while (count > 0) {
    const size_t half = count / 2;
    if (arena.slot(first + half).offset() <= offset) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

bool fits(uint64_t offset, uint64_t nbytes, uint64_t begin, uint64_t size) {
  return offset >= begin && offset - begin <= size &&
         nbytes <= size - (offset - begin);
}

/// Slots ascend and are apart, so only the nearest one can hold the bytes.
bool fits_in_a_slot(const ArenaReader& arena, uint64_t offset,
                    uint64_t nbytes) {
  const size_t end = slots_up_to(arena, offset);
  if (end == 0) {
    return false;
  }
  const SlotReader slot = arena.slot(end - 1);
  return fits(offset, nbytes, slot.offset(), slot.nbytes());
}

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

  Error check_tensors() const {
    if (plan_.num_bindings() == 0) {
      return Error::Ok;
    }
    for (size_t v = 0; v < plan_.num_values(); ++v) {
      const PlannedTensorReader tensor = plan_.planned_tensor(v);
      if (!tensor.present()) {
        continue;
      }
      const BindingReader binding = binding_of(tensor.memory_id());
      if (!binding.present()) {
        continue;
      }
      const Error error = check_tensor(v, tensor, binding);
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
    if (planned < 0 || (planned != 0 &&
                        static_cast<uint64_t>(planned) != arena.size())) {
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
        return refuse(finding_, "expected an index below ",
                      uint64_t{num_slots}, " but found ", access.slot());
      }
      if (slots.repeats(
              i, [&](size_t j) { return binding.access(j).slot(); })) {
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

  BindingReader binding_of(uint32_t memory_id) const {
    for (size_t b = 0; b < plan_.num_bindings(); ++b) {
      if (plan_.binding(b).memory_id() == memory_id) {
        return plan_.binding(b);
      }
    }
    return BindingReader(nullptr);
  }

  Error check_tensor(size_t v, const PlannedTensorReader& tensor,
                     const BindingReader& binding) const {
    const ElementType type = element_type(tensor.scalar_type());
    if (type.width == 0) {
      at(".values[", uint64_t{v}, "].scalar_type");
      return refuse(finding_, "expected a known scalar type but found ",
                    tensor.scalar_type());
    }
    uint64_t nbytes = 0;
    const SizesFault fault = product_of(tensor.sizes(), type.width, &nbytes);
    switch (fault.kind) {
      case SizesFault::Kind::None:
        return check_place(v, tensor, binding, type, nbytes);
      case SizesFault::Kind::Rank:
        at(".values[", uint64_t{v}, "].sizes");
        return refuse(finding_, "expected at most ", uint64_t{kMaxRank},
                      " dimensions but found ",
                      uint64_t{tensor.sizes().size()});
      case SizesFault::Kind::Negative:
        at(".values[", uint64_t{v}, "].sizes[", uint64_t{fault.dim}, "]");
        return refuse(finding_, "expected at least 0 but found ",
                      tensor.sizes()[fault.dim]);
      case SizesFault::Kind::Overflow:
        at(".values[", uint64_t{v}, "]");
        return refuse(finding_,
                      "expected a size that fits 64 bits but found sizes ",
                      List<int32_t>{tensor.sizes()});
    }
    return Error::Internal;
  }

  Error check_place(size_t v, const PlannedTensorReader& tensor,
                    const BindingReader& binding, const ElementType& type,
                    uint64_t nbytes) const {
    const ArenaReader arena = arenas_.arena(binding.arena());
    const uint64_t width = type.width;
    const uint64_t offset = tensor.memory_offset();
    at(".values[", uint64_t{v}, "]");
    if (offset % width != 0) {
      return refuse(finding_, "expected an offset that is a multiple of ",
                    width, " but found ", offset);
    }
    if (width > arena.alignment()) {
      return refuse(finding_, "expected at most the alignment ",
                    arena.alignment(), " of arena ", Name{arena.name()},
                    " but found elements of ", width, " bytes");
    }
    if (arena.lifetime() == 1) {
      if (!fits(offset, nbytes, 0, arena.size())) {
        return refuse(finding_, "expected bytes ", Bytes{offset, nbytes},
                      " inside arena ", Name{arena.name()}, " of ",
                      arena.size(), " bytes");
      }
    } else if (!fits_in_a_slot(arena, offset, nbytes)) {
      return refuse(finding_, "expected bytes ", Bytes{offset, nbytes},
                    " inside one slot of arena ", Name{arena.name()});
    }
    if (tensor.data_buffer_idx() != 0 &&
        plan_.buffer_size(binding.memory_id()) == 0) {
      at(".values[", uint64_t{v}, "].data_buffer_idx");
      return refuse(
          finding_,
          "expected no initial value in required arena memory but found ",
          tensor.data_buffer_idx());
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
  const PlanCheck check(program, plan, finding);
  const Error error = check.check_bindings();
  return error != Error::Ok ? error : check.check_tensors();
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

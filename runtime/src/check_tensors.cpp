#include "checks.h"
#include "element_type.h"
#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

using runtime::Error;

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

class TensorCheck {
 public:
  TensorCheck(const ProgramReader& program, size_t m, Finding* finding)
      : arenas_(program.arenas()),
        plan_(program.plan(m)),
        m_(m),
        finding_(finding) {}

  Error check_all() const {
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
    return check_ends();
  }

 private:
  template <typename... Parts>
  void at(Parts... parts) const {
    write_path(finding_, "execution_plan[", uint64_t{m_}, "]", parts...);
  }

  BindingReader binding_of(uint32_t memory_id) const {
    for (size_t b = 0; b < plan_.num_bindings(); ++b) {
      if (plan_.binding(b).memory_id() == memory_id) {
        return plan_.binding(b);
      }
    }
    return BindingReader(nullptr);
  }

  /// Inputs and outputs are not scratch: another method may run before they
  /// are used.
  Error check_ends() const {
    for (size_t i = 0; i < plan_.num_inputs(); ++i) {
      ET_CHECK_OK_OR_RETURN_ERROR(check_end("].inputs[", i, plan_.input(i)));
    }
    for (size_t i = 0; i < plan_.num_outputs(); ++i) {
      ET_CHECK_OK_OR_RETURN_ERROR(check_end("].outputs[", i, plan_.output(i)));
    }
    return Error::Ok;
  }

  Error check_end(const char* field, size_t i, int32_t value) const {
    if (value < 0 || static_cast<size_t>(value) >= plan_.num_values()) {
      return Error::Ok;  // for `check_method()`
    }
    const PlannedTensorReader tensor =
        plan_.planned_tensor(static_cast<size_t>(value));
    const BindingReader binding = tensor.present()
                                      ? binding_of(tensor.memory_id())
                                      : BindingReader(nullptr);
    if (!binding.present()) {
      return Error::Ok;
    }
    const ArenaReader arena = arenas_.arena(binding.arena());
    if (arena.lifetime() != 1) {
      return Error::Ok;
    }
    write_path(finding_, "execution_plan[", uint64_t{m_}, field, uint64_t{i},
               "]");
    return refuse(finding_, "expected a tensor outside scratch arena ",
                  Name{arena.name()}, " but found value ", value, " in it");
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

Error check_tensors(const ProgramReader& program, size_t plan,
                    Finding* finding) {
  return TensorCheck(program, plan, finding).check_all();
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

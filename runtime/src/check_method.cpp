#include "checks.h"
#include "element_type.h"
#include "message.h"
#include "wire.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

using runtime::Error;
using wire::KernelTypes;

class MethodCheck {
 public:
  MethodCheck(const wire::Program& program, size_t m, Finding* finding)
      : program_(program),
        plan_(*program.execution_plan()->Get(m)),
        m_(m),
        finding_(finding) {}

  Error check_all() const {
    ET_CHECK_OK_OR_RETURN_ERROR(check_values());
    ET_CHECK_OK_OR_RETURN_ERROR(check_ends(".inputs[", plan_.inputs()));
    ET_CHECK_OK_OR_RETURN_ERROR(check_ends(".outputs[", plan_.outputs()));
    return check_delegates();
  }

 private:
  template <typename... Parts>
  void at(Parts... parts) const {
    write_path(finding_, "execution_plan[", uint64_t{m_}, "]", parts...);
  }

  // --- Values ---

  Error check_values() const {
    for (size_t v = 0; v < size_of(plan_.values()); ++v) {
      const wire::EValue& value = *plan_.values()->Get(v);
      if (value.val() == nullptr) {
        continue;  // ExecuTorch looks
      }
      Error error = Error::Ok;
      switch (value.val_type()) {
        case KernelTypes::IntList:
          error = check_ints(v, value.val_as_IntList()->items());
          break;
        case KernelTypes::TensorList:
          error = check_tensors(v, value.val_as_TensorList()->items(), false);
          break;
        case KernelTypes::OptionalTensorList:
          error = check_tensors(v, value.val_as_OptionalTensorList()->items(),
                                true);
          break;
        case KernelTypes::Tensor:
          error = check_tensor(v, *value.val_as_Tensor());
          break;
        default:
          break;
      }
      if (error != Error::Ok) {
        return error;
      }
    }
    return Error::Ok;
  }

  bool is_a(KernelTypes type, int64_t value, size_t end) const {
    return is_below(value, end) && type_of(plan_, value) == type;
  }

  Error check_ints(size_t v, const flatbuffers::Vector<int64_t>* items) const {
    for (size_t i = 0; i < size_of(items); ++i) {
      if (!is_a(KernelTypes::Int, items->Get(i), size_of(plan_.values()))) {
        at(".values[", uint64_t{v}, "].items[", uint64_t{i}, "]");
        return refuse(finding_, "expected the index of an int but found ",
                      items->Get(i));
      }
    }
    return Error::Ok;
  }

  /// Earlier ones, because ExecuTorch copies them as it makes the list.
  Error check_tensors(size_t v, const flatbuffers::Vector<int32_t>* items,
                      bool is_optional) const {
    for (size_t i = 0; i < size_of(items); ++i) {
      const int32_t item = items->Get(i);
      if (is_a(KernelTypes::Tensor, item, v) ||
          (is_optional && (item == -1 || is_a(KernelTypes::Null, item, v)))) {
        continue;
      }
      at(".values[", uint64_t{v}, "].items[", uint64_t{i}, "]");
      return refuse(finding_,
                    "expected the index of an earlier tensor but found ", item);
    }
    return Error::Ok;
  }

  Error check_tensor(size_t v, const wire::Tensor& tensor) const {
    const bool is_external = tensor.extra_tensor_info() != nullptr &&
                             tensor.extra_tensor_info()->location() ==
                                 wire::TensorDataLocation::EXTERNAL;
    return tensor.data_buffer_idx() == 0 || is_external ||
                   tensor.allocation_info() != nullptr
               ? Error::Ok
               : check_constant(v, tensor);
  }

  Error check_constant(size_t v, const wire::Tensor& tensor) const {
    const ElementType type =
        element_type(static_cast<int>(tensor.scalar_type()));
    runtime::Span<const int32_t> sizes;
    if (tensor.sizes() != nullptr) {
      sizes = {tensor.sizes()->data(), tensor.sizes()->size()};
    }
    uint64_t nbytes = 0;
    if (product_of(sizes, type.width, &nbytes).kind != SizesFault::Kind::None) {
      return Error::Ok;  // ExecuTorch looks
    }
    if (nbytes > constant_size(tensor.data_buffer_idx())) {
      at(".values[", uint64_t{v}, "].data_buffer_idx");
      return refuse(finding_, "expected ", nbytes,
                    " bytes of constant data but found fewer at index ",
                    tensor.data_buffer_idx());
    }
    return Error::Ok;
  }

  /// How many bytes there are for a constant; 0 also where it has none.
  uint64_t constant_size(uint32_t index) const {
    const wire::SubsegmentOffsets* constants = program_.constant_segment();
    if (constants == nullptr || size_of(constants->offsets()) <= 1) {
      const auto* buffers = program_.constant_buffer();
      return index < size_of(buffers) ? size_of(buffers->Get(index)->storage())
                                      : 0;
    }
    const uint32_t segment = constants->segment_index();
    if (index >= constants->offsets()->size() ||
        segment >= size_of(program_.segments())) {
      return 0;
    }
    const uint64_t size = program_.segments()->Get(segment)->size();
    const uint64_t offset = constants->offsets()->Get(index);
    return offset < size ? size - offset : 0;
  }

  Error check_ends(const char* field,
                   const flatbuffers::Vector<int32_t>* indices) const {
    for (size_t i = 0; i < size_of(indices); ++i) {
      if (!is_below(indices->Get(i), size_of(plan_.values()))) {
        at(field, uint64_t{i}, "]");
        return refuse_index(size_of(plan_.values()), indices->Get(i));
      }
    }
    return Error::Ok;
  }

  Error refuse_index(size_t count, int32_t index) const {
    return refuse(finding_, "expected an index below ", uint64_t{count},
                  " but found ", index);
  }

  // --- Delegates ---

  Error check_delegates() const {
    for (size_t d = 0; d < size_of(plan_.delegates()); ++d) {
      const wire::BackendDelegate& delegate = *plan_.delegates()->Get(d);
      if (!has_data(delegate)) {
        at(".delegates[", uint64_t{d}, "].processed");
        return refuse(finding_, "expected data in the program but found none");
      }
      if (!has_compile_specs(delegate)) {
        at(".delegates[", uint64_t{d}, "].compile_specs");
        return refuse(finding_, "expected keys with values but found none");
      }
    }
    return Error::Ok;
  }

  bool has_data(const wire::BackendDelegate& delegate) const {
    const auto* processed = delegate.processed();
    if (processed == nullptr) {
      return false;
    }
    if (processed->location() == wire::DataLocation::INLINE) {
      const auto* data = program_.backend_delegate_data();
      return processed->index() < size_of(data) &&
             data->Get(processed->index())->data() != nullptr;
    }
    return processed->index() < size_of(program_.segments());
  }

  static bool has_compile_specs(const wire::BackendDelegate& delegate) {
    const auto* specs = delegate.compile_specs();
    for (size_t i = 0; i < size_of(specs); ++i) {
      if (specs->Get(i)->key() == nullptr ||
          specs->Get(i)->value() == nullptr) {
        return false;
      }
    }
    return specs != nullptr;
  }

  const wire::Program& program_;
  const wire::ExecutionPlan& plan_;
  const size_t m_;
  Finding* const finding_;
};

}  // namespace

Error check_method(const ProgramReader& program, size_t plan,
                   Finding* finding) {
  const Error error =
      MethodCheck(*static_cast<const wire::Program*>(program.table()), plan,
                  finding)
          .check_all();
  return error != Error::Ok ? error
                            : check_instructions(program, plan, finding);
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

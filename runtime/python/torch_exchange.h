#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <nanobind/nanobind.h>

#include "dlpack.h"

namespace pte_arenas {

/**
 * torch's tensors, through its DLPack exchange functions: no link to torch's
 * libraries, no Python call for a tensor. Call with the GIL held.
 */
class TorchExchange final {
 public:
  /// Imports torch at the first call.
  static const TorchExchange& get();

  /// Whether the object is a torch.Tensor or of a subclass.
  bool is_tensor(nanobind::handle object) const {
    PyTypeObject* const type = Py_TYPE(object.ptr());
    return type == tensor_type_ || PyType_IsSubtype(type, tensor_type_) != 0;
  }

  /**
   * Describes a tensor's memory, valid as long as the tensor.
   *
   * @returns False if torch has no such description (sparse and meta tensors,
   *     for example); no Python exception is left.
   */
  bool describe(nanobind::handle tensor, dlpack::Tensor* description) const;

  /// Whether the elements in memory are the negatives or conjugates of what
  /// they mean; DLPack does not say so.
  bool is_lazy(nanobind::handle tensor, dlpack::DataType dtype) const;

  /**
   * A tensor like this one in plain memory, with its dimensions permuted.
   *
   * @param[in] dim_order Dimensions from the outermost in memory to the
   *     innermost. The result has them in this order, contiguous.
   */
  nanobind::object in_order(nanobind::handle tensor, const uint8_t* dim_order,
                            size_t rank) const;

  /// Makes a torch tensor that owns `tensor`, which is deleted on failure.
  nanobind::object own(dlpack::ManagedTensor* tensor) const;

 private:
  TorchExchange();

  PyTypeObject* tensor_type_;
  PyObject* is_neg_;
  PyObject* is_conj_;
  const dlpack::ExchangeApi* api_;
};

/// DLPack's name of an element type; `lanes` is 0 where it has none.
dlpack::DataType dlpack_type(executorch::aten::ScalarType type);

}  // namespace pte_arenas

#include "inputs.h"

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "raising.h"
#include "words.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::runtime::Error;

namespace {

// What an empty tensor points to; ExecuTorch refuses null.
alignas(64) char no_bytes[64];

/// Whether a Python value is the one that a program is specialised to.
struct IsExported {
  PyObject* const value;

  bool operator()(std::monostate) const { return value == Py_None; }

  bool operator()(bool expected) const {
    return value == (expected ? Py_True : Py_False);
  }

  bool operator()(int64_t expected) const {
    if (!PyLong_Check(value) || PyBool_Check(value)) {
      return false;
    }
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 && number == expected;
  }

  bool operator()(double expected) const {
    if (!(PyFloat_Check(value) || PyLong_Check(value)) || PyBool_Check(value)) {
      return false;
    }
    const double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {  // an int beyond all floats
      PyErr_Clear();
      return false;
    }
    return number == expected || (std::isnan(number) && std::isnan(expected));
  }

  bool operator()(const std::string& expected) const {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_Check(value)
                                 ? PyUnicode_AsUTF8AndSize(value, &size)
                                 : nullptr;
    PyErr_Clear();
    return text != nullptr &&
           expected == std::string_view(text, static_cast<size_t>(size));
  }
};

/// Whether a tensor's memory is dense in the order that the method wants.
bool is_laid_out(const dlpack::Tensor& tensor,
                 const std::vector<uint8_t>& dim_order) {
  if (tensor.strides == nullptr) {
    for (size_t i = 0; i < dim_order.size(); ++i) {
      if (dim_order[i] != i) {
        return false;
      }
    }
    return true;
  }
  bool is_dense = true;
  int64_t stride = 1;
  for (size_t i = dim_order.size(); i > 0; --i) {
    const uint8_t dim = dim_order[i - 1];
    const int64_t size = tensor.shape[dim];
    if (size == 0) {
      return true;
    }
    // The stride of a dimension of one element means nothing.
    is_dense = is_dense && (size == 1 || tensor.strides[dim] == stride);
    stride *= size;
  }
  return is_dense;
}

bool is_empty(const dlpack::Tensor& tensor) {
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0) {
      return true;
    }
  }
  return false;
}

bool is_true(const nb::object& object) { return object.is(nb::bool_(true)); }

/// What keeps torch from changing a tensor in place, and what to do; or null.
const char* why_not_writable(nb::handle value, const dlpack::Tensor& tensor) {
  for (int32_t d = 0; tensor.strides != nullptr && d < tensor.ndim; ++d) {
    if (tensor.strides[d] == 0 && tensor.shape[d] > 1) {
      return "expanded memory: pass its clone()";
    }
  }
  const nb::module_ torch = nb::module_::import_("torch");
  if (is_true(value.attr("requires_grad")) && is_true(value.attr("is_leaf")) &&
      is_true(torch.attr("is_grad_enabled")())) {
    return "a leaf that requires grad: call it in torch.no_grad()";
  }
  if (is_true(value.attr("is_inference")()) &&
      !is_true(torch.attr("is_inference_mode_enabled")())) {
    return "an inference tensor: call it in torch.inference_mode()";
  }
  return nullptr;
}

nb::tuple as_tuple(const Signature& signature, nb::handle values) {
  const std::string expected = signature.method + ": expected a sequence of " +
                               inputs_in_words(signature.inputs.size());
  if (TorchExchange::get().is_tensor(values)) {
    raise_type_error(expected + " but found a tensor: write (tensor,)");
  }
  if (PyAnySet_Check(values.ptr())) {
    raise_type_error(expected + " but found a " + found_in_words(values) +
                     ", which has no order");
  }
  PyObject* const tuple = PySequence_Tuple(values.ptr());
  if (tuple == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
      throw nb::python_error();
    }
    PyErr_Clear();
    raise_type_error(expected + " but found " + found_in_words(values));
  }
  return nb::steal<nb::tuple>(tuple);
}

}  // namespace

Inputs::Inputs(const Signature& signature, nb::handle values)
    : signature_(signature),
      values_(PyTuple_CheckExact(values.ptr()) ? nb::borrow<nb::tuple>(values)
                                               : as_tuple(signature, values)) {
  const size_t count = signature.inputs.size();
  if (values_.size() != count) {
    raise_value_error(signature.method + ": expected " +
                      inputs_in_words(count) + " but found " +
                      std::to_string(values_.size()));
  }
  if (count > kInlineCount) {
    more_ = std::make_unique<Tensor[]>(count);
  }
  for (size_t i = 0; i < count; ++i) {
    take(i, nb::handle(PyTuple_GET_ITEM(values_.ptr(), i)));
  }
}

void Inputs::take(size_t index, nb::handle value) {
  const InputType& type = signature_.inputs[index];
  if (type.is_tensor) {
    take_tensor(index, value);
  } else if (!std::visit(IsExported{value.ptr()}, type.exported)) {
    refuse(index, value);
  }
}

void Inputs::take_tensor(size_t index, nb::handle value) {
  const InputType& type = signature_.inputs[index];
  const TorchExchange& torch = TorchExchange::get();
  dlpack::Tensor given;
  if (!torch.is_tensor(value) || !torch.describe(value, &given)) {
    refuse(index, value);
  }
  check_shape(index, value, given);
  if (type.is_mutated) {
    check_writable(index, value, given);
  }
  Tensor& taken = tensor(index);
  for (int32_t d = 0; d < given.ndim; ++d) {
    taken.sizes[d] = static_cast<int32_t>(given.shape[d]);
  }
  if (!is_laid_out(given, type.dim_order) ||
      torch.is_lazy(value, given.dtype)) {
    copies_.push_back(
        torch.in_order(value, type.dim_order.data(), type.dim_order.size()));
    if (!torch.describe(copies_.back(), &given)) {
      refuse(index, value);
    }
  }
  taken.data = static_cast<char*>(given.data) + given.byte_offset;
  if (given.data == nullptr) {
    if (!is_empty(given)) {
      raise_type_error(signature_.method + ": input " + std::to_string(index) +
                       ": expected a tensor with data but found " +
                       Py_TYPE(value.ptr())->tp_name);
    }
    taken.data = no_bytes;
  }
}

void Inputs::check_shape(size_t index, nb::handle value,
                         const dlpack::Tensor& tensor) const {
  const InputType& type = signature_.inputs[index];
  const size_t rank = type.sizes.size();
  bool fits = tensor.device.type == dlpack::kCpu &&
              tensor.dtype == type.dlpack_type &&
              tensor.ndim == static_cast<int32_t>(rank) && rank <= kMaxRank;
  for (size_t d = 0; fits && d < rank; ++d) {
    const int64_t size = tensor.shape[d];
    fits = type.shape == Shape::Fixed     ? size == type.sizes[d]
           : type.shape == Shape::Bounded ? size <= type.sizes[d]
                                          : size <= INT32_MAX;
  }
  if (!fits) {
    refuse(index, value);
  }
}

void Inputs::check_writable(size_t index, nb::handle value,
                            const dlpack::Tensor& tensor) const {
  const char* const found = why_not_writable(value, tensor);
  if (found != nullptr) {
    raise_value_error(signature_.method + ": input " + std::to_string(index) +
                      ": expected a tensor that can be changed in place, as "
                      "the method does, but found " +
                      found);
  }
}

void Inputs::write_back(size_t index, nb::handle elements) const {
  // Detached, it has the same memory and the same count of changes.
  nb::handle(PyTuple_GET_ITEM(values_.ptr(), index))
      .attr("detach")()
      .attr("copy_")(elements);
}

void Inputs::refuse(size_t index, nb::handle value) const {
  const InputType& type = signature_.inputs[index];
  const bool is_tensor = TorchExchange::get().is_tensor(value);
  const std::string message =
      signature_.method + ": input " + std::to_string(index) + ": expected " +
      type.in_words() + " but found " +
      (type.is_tensor ? found_instead_of_tensor(value) : found_in_words(value));
  if (type.is_tensor == is_tensor) {
    raise_value_error(message);
  }
  raise_type_error(message);
}

Error Inputs::set(Method& method) const {
  namespace internal = executorch::runtime::internal;
  for (size_t i = 0; i < signature_.inputs.size(); ++i) {
    const InputType& type = signature_.inputs[i];
    if (!type.is_tensor) {
      continue;  // the method has the value
    }
    const Tensor& given = tensor(i);
    const executorch::aten::Tensor& place = input_value(method, i).toTensor();
    if (type.shape != Shape::Fixed) {
      ET_CHECK_OK_OR_RETURN_ERROR(executorch::runtime::resize_tensor(
          place, {given.sizes.data(), type.sizes.size()}));
    }
    const size_t nbytes = place.nbytes();
    if (!type.is_planned) {
      ET_CHECK_OK_OR_RETURN_ERROR(
          internal::set_tensor_data(place, given.data, nbytes));
    } else if (nbytes > 0) {
      ET_CHECK_OR_RETURN_ERROR(place.const_data_ptr() != nullptr, InvalidState,
                               "input %zu has no memory", i);
      std::memcpy(place.mutable_data_ptr(), given.data, nbytes);
    }
  }
  return Error::Ok;
}

}  // namespace pte_arenas

#include "torch_exchange.h"

#include <string>

#include "raising.h"

namespace nb = nanobind;

namespace pte_arenas {
namespace {

const dlpack::ExchangeApi* exchange_api_of(nb::handle tensor_type) {
  const nb::object capsule =
      nb::getattr(tensor_type, "__dlpack_c_exchange_api__", nb::none());
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      capsule.is_none()
          ? nullptr
          : PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major > dlpack::kMajorVersion) {
    api = api->previous;
  }
  if (api == nullptr || api->to_tensor == nullptr) {
    PyErr_SetString(
        PyExc_ImportError,
        "expected a torch whose tensors have DLPack's exchange functions, "
        "version 1, but found none: install torch>=2.13,<2.14");
    throw nb::python_error();
  }
  return api;
}

bool calls_true(PyObject* method, nb::handle tensor) {
  PyObject* arguments[] = {tensor.ptr()};
  const nb::object result =
      nb::steal(PyObject_Vectorcall(method, arguments, 1, nullptr));
  if (!result.is_valid()) {
    throw nb::python_error();
  }
  return result.is(nb::bool_(true));
}

}  // namespace

TorchExchange::TorchExchange() {
  const nb::object type = nb::module_::import_("torch").attr("Tensor");
  api_ = exchange_api_of(type);
  is_neg_ = nb::object(type.attr("is_neg")).release().ptr();
  is_conj_ = nb::object(type.attr("is_conj")).release().ptr();
  // Held for ever, as the module that it comes from is.
  tensor_type_ =
      reinterpret_cast<PyTypeObject*>(nb::object(type).release().ptr());
}

const TorchExchange& TorchExchange::get() {
  // The first call may import torch and so let other threads run, which would
  // wait for a static initialiser that holds up the GIL's owner.
  static const TorchExchange* exchange = nullptr;
  if (exchange == nullptr) {
    exchange = new TorchExchange();
  }
  return *exchange;
}

bool TorchExchange::describe(nb::handle tensor,
                             dlpack::Tensor* description) const {
  if (api_->to_tensor(tensor.ptr(), description) != 0) {
    PyErr_Clear();
    return false;
  }
  return true;
}

bool TorchExchange::is_lazy(nb::handle tensor, dlpack::DataType dtype) const {
  switch (dtype.code) {
    case dlpack::kFloat:
      return calls_true(is_neg_, tensor);
    case dlpack::kComplex:
      return calls_true(is_neg_, tensor) || calls_true(is_conj_, tensor);
    default:
      return false;
  }
}

nb::object TorchExchange::in_order(nb::handle tensor, const uint8_t* dim_order,
                                   size_t rank) const {
  nb::list dims;
  for (size_t i = 0; i < rank; ++i) {
    dims.append(nb::int_(dim_order[i]));
  }
  return tensor.attr("detach")()
      .attr("resolve_conj")()
      .attr("resolve_neg")()
      .attr("permute")(dims)
      .attr("contiguous")();
}

nb::object TorchExchange::own(dlpack::ManagedTensor* tensor) const {
  void* object = nullptr;
  if (api_->from_managed(tensor, &object) != 0) {
    tensor->deleter(tensor);
    throw nb::python_error();
  }
  return nb::steal(static_cast<PyObject*>(object));
}

dlpack::DataType dlpack_type(executorch::aten::ScalarType type) {
  using executorch::aten::ScalarType;
  switch (type) {
    case ScalarType::Byte:
      return {dlpack::kUInt, 8, 1};
    case ScalarType::Char:
      return {dlpack::kInt, 8, 1};
    case ScalarType::Short:
      return {dlpack::kInt, 16, 1};
    case ScalarType::Int:
      return {dlpack::kInt, 32, 1};
    case ScalarType::Long:
      return {dlpack::kInt, 64, 1};
    case ScalarType::UInt16:
      return {dlpack::kUInt, 16, 1};
    case ScalarType::UInt32:
      return {dlpack::kUInt, 32, 1};
    case ScalarType::UInt64:
      return {dlpack::kUInt, 64, 1};
    case ScalarType::Half:
      return {dlpack::kFloat, 16, 1};
    case ScalarType::Float:
      return {dlpack::kFloat, 32, 1};
    case ScalarType::Double:
      return {dlpack::kFloat, 64, 1};
    case ScalarType::BFloat16:
      return {dlpack::kBfloat, 16, 1};
    case ScalarType::Bool:
      return {dlpack::kBool, 8, 1};
    case ScalarType::Float8_e5m2:
      return {dlpack::kFloat8_e5m2, 8, 1};
    case ScalarType::Float8_e4m3fn:
      return {dlpack::kFloat8_e4m3fn, 8, 1};
    case ScalarType::Float8_e5m2fnuz:
      return {dlpack::kFloat8_e5m2fnuz, 8, 1};
    case ScalarType::Float8_e4m3fnuz:
      return {dlpack::kFloat8_e4m3fnuz, 8, 1};
    default:
      return {0, 0, 0};
  }
}

}  // namespace pte_arenas

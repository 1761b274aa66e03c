#include "outputs.h"

#include <cstring>
#include <optional>
#include <string>

#include "torch_exchange.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::EValue;

namespace {

bool is_for_torch(const Tensor& tensor) {
  return static_cast<size_t>(tensor.dim()) <= TensorBlock::kMaxRank &&
         dlpack_type(tensor.scalar_type()).lanes != 0;
}

struct ToPython {
  nb::object operator()(std::monostate) const { return nb::none(); }
  nb::object operator()(int64_t number) const { return nb::int_(number); }
  nb::object operator()(double number) const { return nb::float_(number); }
  nb::object operator()(bool truth) const { return nb::bool_(truth); }
  nb::object operator()(const std::string& text) const {
    return nb::str(text.data(), text.size());
  }
};

}  // namespace

Error Outputs::place(const Signature& signature, Method& method) {
  values_.resize(signature.outputs.size());
  for (size_t i = 0; i < values_.size(); ++i) {
    const OutputType& type = signature.outputs[i];
    if (!type.is_placed) {
      continue;
    }
    TensorBlock::Owner block = TensorBlock::allocate(type.capacity, spare_);
    if (block == nullptr) {
      return Error::MemoryAllocationFailed;
    }
    // At least a byte: ExecuTorch takes no size of zero.
    ET_CHECK_OK_OR_RETURN_ERROR(method.set_output_data_ptr(
        block->data(), type.capacity > 0 ? type.capacity : 1, i));
    values_[i].content = std::move(block);
  }
  return Error::Ok;
}

Error Outputs::take(const Signature& signature, LoadedMethod& loaded,
                    std::shared_ptr<const void> owner) {
  const Method& method = loaded.method();
  for (size_t i = 0; i < values_.size(); ++i) {
    const EValue& value = method.get_output(i);
    auto* const placed = std::get_if<TensorBlock::Owner>(&values_[i].content);
    if (placed != nullptr && value.isTensor() &&
        value.toTensor().const_data_ptr() == (*placed)->data()) {
      (*placed)->describe(value.toTensor(), (*placed)->data());
    } else if (owner != nullptr && value.isTensor() &&
               loaded.plans(value.toTensor().const_data_ptr())) {
      ET_CHECK_OK_OR_RETURN_ERROR(view(value.toTensor(), owner, &values_[i]));
    } else {
      ET_CHECK_OK_OR_RETURN_ERROR(copy(value, &values_[i]));
    }
  }
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    if (signature.inputs[i].is_mutated) {
      mutated_.emplace_back(i, Value());
      ET_CHECK_OK_OR_RETURN_ERROR(
          copy(input_value(method, i), &mutated_.back().second));
    }
  }
  return Error::Ok;
}

Error Outputs::view(const Tensor& tensor, std::shared_ptr<const void> owner,
                    Value* viewed) {
  if (!is_for_torch(tensor)) {
    return Error::NotSupported;
  }
  TensorBlock::Owner block = TensorBlock::allocate(0);
  if (block == nullptr) {
    return Error::MemoryAllocationFailed;
  }
  block->owner = std::move(owner);
  block->describe(tensor, tensor.mutable_data_ptr());
  viewed->content = std::move(block);
  return Error::Ok;
}

Error Outputs::copy(const Tensor& tensor, Value* copied) const {
  if (!is_for_torch(tensor)) {
    return Error::NotSupported;
  }
  TensorBlock::Owner block = TensorBlock::allocate(tensor.nbytes(), spare_);
  if (block == nullptr) {
    return Error::MemoryAllocationFailed;
  }
  if (tensor.nbytes() > 0) {
    if (tensor.const_data_ptr() == nullptr) {
      return Error::InvalidState;
    }
    std::memcpy(block->data(), tensor.const_data_ptr(), tensor.nbytes());
  }
  block->describe(tensor, block->data());
  copied->content = std::move(block);
  return Error::Ok;
}

Error Outputs::copy(const EValue& value, Value* copied) const {
  List list;
  const auto append = [&](auto item) {
    list.push_back(Value{Scalar(std::move(item))});
  };
  if (value.isTensor()) {
    return copy(value.toTensor(), copied);
  }
  if (value.isNone()) {
    copied->content = Scalar();
  } else if (value.isInt()) {
    copied->content = Scalar(value.toInt());
  } else if (value.isDouble()) {
    copied->content = Scalar(value.toDouble());
  } else if (value.isBool()) {
    copied->content = Scalar(value.toBool());
  } else if (value.isString()) {
    copied->content = Scalar(std::string(value.toString()));
  } else if (value.isIntList()) {
    for (const int64_t item : value.toIntList()) {
      append(item);
    }
    copied->content = std::move(list);
  } else if (value.isDoubleList()) {
    for (const double item : value.toDoubleList()) {
      append(item);
    }
    copied->content = std::move(list);
  } else if (value.isBoolList()) {
    for (const bool item : value.toBoolList()) {
      append(item);
    }
    copied->content = std::move(list);
  } else if (value.isTensorList()) {
    for (const Tensor& item : value.toTensorList()) {
      list.emplace_back();
      ET_CHECK_OK_OR_RETURN_ERROR(copy(item, &list.back()));
    }
    copied->content = std::move(list);
  } else if (value.isListOptionalTensor()) {
    for (const std::optional<Tensor>& item : value.toListOptionalTensor()) {
      list.emplace_back();
      if (item.has_value()) {
        ET_CHECK_OK_OR_RETURN_ERROR(copy(*item, &list.back()));
      }
    }
    copied->content = std::move(list);
  } else {
    return Error::NotSupported;
  }
  return Error::Ok;
}

void Outputs::write_back(const Inputs& inputs) {
  for (auto& [index, value] : mutated_) {
    inputs.write_back(index, to_python(value));
  }
}

nb::list Outputs::to_python() {
  nb::list list =
      nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(values_.size())));
  for (size_t i = 0; i < values_.size(); ++i) {
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i),
                    to_python(values_[i]).release().ptr());
  }
  return list;
}

nb::object Outputs::to_python(Value& value) {
  if (auto* const scalar = std::get_if<Scalar>(&value.content)) {
    return std::visit(ToPython(), *scalar);
  }
  if (auto* const block = std::get_if<TensorBlock::Owner>(&value.content)) {
    return TorchExchange::get().own(&block->release()->managed);
  }
  nb::list list;
  for (Value& item : std::get<List>(value.content)) {
    list.append(to_python(item));
  }
  return list;
}

}  // namespace pte_arenas

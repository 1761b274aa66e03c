#include "signature.h"

#include <executorch/runtime/executor/method_meta.h>
#include <nanobind/nanobind.h>

#include "element_type.h"
#include "torch_exchange.h"
#include "words.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::aten::TensorShapeDynamism;
using executorch::extension::arenas::internal::element_type;
using executorch::runtime::EValue;

namespace {

Shape shape_of(const EValue& value) {
  switch (value.toTensor().shape_dynamism()) {
    case TensorShapeDynamism::STATIC:
      return Shape::Fixed;
    case TensorShapeDynamism::DYNAMIC_BOUND:
      return Shape::Bounded;
    default:
      return Shape::Free;
  }
}

Scalar scalar_of(const EValue& value) {
  if (value.isInt()) {
    return value.toInt();
  }
  if (value.isDouble()) {
    return value.toDouble();
  }
  if (value.isBool()) {
    return value.toBool();
  }
  if (value.isString()) {
    return std::string(value.toString());
  }
  return {};
}

InputType input_type(const Method& method, size_t index) {
  InputType type;
  const EValue& value = input_value(method, index);
  if (!value.isTensor()) {
    type.exported = scalar_of(value);
    return type;
  }
  const auto meta = method.method_meta().input_tensor_meta(index);
  if (!meta.ok()) {
    return type;
  }
  type.is_tensor = true;
  type.scalar_type = meta->scalar_type();
  type.dlpack_type = dlpack_type(meta->scalar_type());
  type.shape = shape_of(value);
  type.is_planned = meta->is_memory_planned();
  type.sizes.assign(meta->sizes().begin(), meta->sizes().end());
  type.dim_order.assign(meta->dim_order().begin(), meta->dim_order().end());
  return type;
}

bool is_named_before(const Method& method, size_t output) {
  const EValue* const value = &method.get_output(output);
  for (size_t i = 0; i < method.inputs_size(); ++i) {
    if (&input_value(method, i) == value) {
      return true;
    }
  }
  for (size_t i = 0; i < output; ++i) {
    if (&method.get_output(i) == value) {
      return true;
    }
  }
  return false;
}

OutputType output_type(const Method& method, size_t index) {
  if (!method.get_output(index).isTensor()) {
    return {};
  }
  const auto meta = method.method_meta().output_tensor_meta(index);
  if (!meta.ok()) {
    return {};
  }
  return {!meta->is_memory_planned() && !is_named_before(method, index),
          meta->nbytes()};
}

/// Where a tensor is that is not on the CPU; else empty.
std::string device_of(const EValue& value) {
  if (!value.isTensor()) {
    return "";
  }
  const auto device = value.toTensor().unsafeGetTensorImpl()->device();
  return device.is_cpu() ? "" : "cuda:" + std::to_string(device.index());
}

std::string scalar_in_words(const Scalar& value) {
  std::string text;
  if (const auto* number = std::get_if<int64_t>(&value)) {
    text = "the int " + std::to_string(*number);
  } else if (const auto* number = std::get_if<double>(&value)) {
    text = "the float " + repr_of(nb::float_(*number));
  } else if (const auto* truth = std::get_if<bool>(&value)) {
    text = *truth ? "True" : "False";
  } else if (const auto* string = std::get_if<std::string>(&value)) {
    text = "the str " + repr_of(nb::str(string->c_str(), string->size()));
  } else {
    return "None";
  }
  return text + ", the value that the method was exported with,";
}

}  // namespace

// ExecuTorch tells how a shape may vary nowhere else.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
const EValue& input_value(const Method& method, size_t index) {
  return method.get_input(index);
}

void take_over_inputs(Method& method) {
  // `get_inputs()` leaves setting them to who gets them. It fails only for a
  // method that is not initialised, and execution then says so.
  std::vector<EValue> values(method.inputs_size());
  (void)method.get_inputs(values.data(), values.size());
}
#pragma GCC diagnostic pop

std::string sizes_in_words(const std::vector<int32_t>& sizes) {
  std::string text = "(";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + (sizes.size() == 1 ? ",)" : ")");
}

std::string InputType::in_words() const {
  if (!is_tensor) {
    return scalar_in_words(exported);
  }
  const char* const name = element_type(static_cast<int>(scalar_type)).name;
  const std::string dtype = name == nullptr ? "another dtype" : name;
  switch (shape) {
    case Shape::Fixed:
      return dtype + " of sizes " + sizes_in_words(sizes);
    case Shape::Bounded:
      return dtype + " of sizes up to " + sizes_in_words(sizes);
    default:
      return dtype + " of rank " + std::to_string(sizes.size());
  }
}

Signature::Signature(executorch::extension::arenas::LoadedMethod& loaded_method,
                     const executorch::extension::arenas::ArenaTable& table)
    : method(loaded_method.name()) {
  const Method& loaded = loaded_method.method();
  const auto index = table.find_method(method);
  for (size_t i = 0; i < loaded.inputs_size(); ++i) {
    inputs.push_back(input_type(loaded, i));
    InputType& type = inputs.back();
    type.is_mutated =
        type.is_tensor && index.ok() && table.mutates_input(*index, i);
  }
  for (size_t i = 0; i < loaded.outputs_size(); ++i) {
    outputs.push_back(output_type(loaded, i));
  }
  const auto note = [this](const char* kind, size_t place,
                           const EValue& value) {
    const std::string device = device_of(value);
    if (unreachable.empty() && !device.empty()) {
      unreachable = kind + std::to_string(place) +
                    " on the CPU but found it on " + device;
    }
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    note("input ", i, input_value(loaded, i));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    note("output ", i, loaded.get_output(i));
  }
}

}  // namespace pte_arenas

#include "metadata.h"

#include <executorch/runtime/executor/method_meta.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>

#include "element_type.h"
#include "raising.h"
#include "words.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::extension::arenas::internal::element_type;
using executorch::runtime::MethodMeta;
using executorch::runtime::Result;
using executorch::runtime::Tag;
using executorch::runtime::TensorInfo;

namespace {

using Program = std::shared_ptr<const ProgramHandle::Program>;

/// Metadata points into the program, so it keeps it.
struct MethodView {
  Program program;
  MethodMeta meta;
};

struct TensorView {
  Program program;
  TensorInfo info;
};

nb::tuple sizes_of(const TensorView& tensor) {
  nb::list sizes;
  for (const int32_t size : tensor.info.sizes()) {
    sizes.append(size);
  }
  return nb::tuple(sizes);
}

std::string dtype_name(const TensorView& tensor) {
  const int code = static_cast<int>(tensor.info.scalar_type());
  const char* const name = element_type(code).name;
  return name == nullptr ? std::to_string(code) : name;
}

size_t index_below(size_t count, nb::handle value, const std::string& where) {
  if (!PyIndex_Check(value.ptr())) {
    raise_type_error(where + ": expected an index but found " +
                     found_in_words(value));
  }
  const Py_ssize_t index = PyNumber_AsSsize_t(value.ptr(), nullptr);
  if (index == -1 && PyErr_Occurred()) {
    throw nb::python_error();
  }
  if (index < 0 || static_cast<size_t>(index) >= count) {
    raise_index_error(where + ": expected an index in [0, " +
                      std::to_string(count) + ") but found " + repr_of(value));
  }
  return static_cast<size_t>(index);
}

/// Checks an index and a tag before the tensor is looked at.
template <typename TagOf, typename InfoOf>
TensorView tensor_at(const MethodView& method, const std::string& what,
                     nb::handle value, size_t count, TagOf tag_of,
                     InfoOf info_of) {
  const std::string name = method.meta.name();
  const size_t index = index_below(count, value, name + ": " + what + "s");
  const std::string where = name + ": " + what + " ";
  const Result<Tag> tag = tag_of(index);
  if (!tag.ok() || *tag != Tag::Tensor) {
    raise_type_error(where + std::to_string(index) +
                     ": expected a tensor but found another type");
  }
  const Result<TensorInfo> info = info_of(index);
  if (!info.ok()) {
    raise_runtime_error(where + std::to_string(index), info.error());
  }
  return {method.program, *info};
}

TensorView input_at(const MethodView& method, nb::handle index) {
  return tensor_at(
      method, "input", index, method.meta.num_inputs(),
      [&](size_t i) { return method.meta.input_tag(i); },
      [&](size_t i) { return method.meta.input_tensor_meta(i); });
}

TensorView output_at(const MethodView& method, nb::handle index) {
  return tensor_at(
      method, "output", index, method.meta.num_outputs(),
      [&](size_t i) { return method.meta.output_tag(i); },
      [&](size_t i) { return method.meta.output_tensor_meta(i); });
}

TensorView attribute_at(const MethodView& method, nb::handle index) {
  return tensor_at(
      method, "attribute", index, method.meta.num_attributes(),
      [](size_t) -> Result<Tag> { return Tag::Tensor; },
      [&](size_t i) { return method.meta.attribute_tensor_meta(i); });
}

std::string repr(const TensorView& tensor) {
  return "TensorInfo(sizes=" +
         nb::cast<std::string>(
             nb::steal(PyObject_Str(sizes_of(tensor).ptr()))) +
         ", dtype=" + dtype_name(tensor) + ", is_memory_planned=" +
         (tensor.info.is_memory_planned() ? "True" : "False") +
         ", nbytes=" + std::to_string(tensor.info.nbytes()) + ")";
}

std::string repr(const MethodView& method) {
  return "MethodMeta(name='" + std::string(method.meta.name()) +
         "', num_inputs=" + std::to_string(method.meta.num_inputs()) +
         ", num_outputs=" + std::to_string(method.meta.num_outputs()) + ")";
}

}  // namespace

void define_metadata(nb::module_& module) {
  nb::class_<TensorView>(module, "TensorInfo",
                         "What a program says of one of its tensors.")
      .def("sizes", &sizes_of, nb::sig("def sizes(self) -> tuple[int, ...]"),
           "Size of each dimension; the largest where it may vary.")
      .def(
          "dtype",
          [](const TensorView& tensor) {
            return static_cast<int>(tensor.info.scalar_type());
          },
          "Code of the element type in ExecuTorch's schema (ScalarType).")
      .def("dtype_name", &dtype_name,
           "Element type as torch spells it, such as `float32`.")
      .def(
          "is_memory_planned",
          [](const TensorView& tensor) {
            return tensor.info.is_memory_planned();
          },
          "Whether the program has memory for it.")
      .def(
          "nbytes",
          [](const TensorView& tensor) { return tensor.info.nbytes(); },
          "Size in bytes; the largest where the shape may vary.")
      .def(
          "name", [](const TensorView& tensor) { return tensor.info.name(); },
          "Fully qualified name, or an empty string.")
      .def("__repr__", [](const TensorView& tensor) { return repr(tensor); });
  nb::class_<MethodView>(module, "MethodMeta",
                         "What a program says of one of its methods.")
      .def(
          "name", [](const MethodView& method) { return method.meta.name(); },
          "Name of the method.")
      .def(
          "num_inputs",
          [](const MethodView& method) { return method.meta.num_inputs(); },
          "Number of inputs.")
      .def(
          "num_outputs",
          [](const MethodView& method) { return method.meta.num_outputs(); },
          "Number of outputs.")
      .def(
          "num_attributes",
          [](const MethodView& method) { return method.meta.num_attributes(); },
          "Number of named tensors.")
      .def("input_tensor_meta", &input_at, nb::arg("index"),
           nb::sig("def input_tensor_meta(self, index: int) -> TensorInfo"),
           "The tensor at one place of the inputs.")
      .def("output_tensor_meta", &output_at, nb::arg("index"),
           nb::sig("def output_tensor_meta(self, index: int) -> TensorInfo"),
           "The tensor at one place of the outputs.")
      .def("attribute_tensor_meta", &attribute_at, nb::arg("index"),
           nb::sig("def attribute_tensor_meta(self, index: int) -> TensorInfo"),
           "One of the named tensors.")
      .def("__repr__", [](const MethodView& method) { return repr(method); });
}

nb::object metadata_of(Program program, const std::string& method) {
  const Result<MethodMeta> meta =
      program->program().method_meta(method.c_str());
  if (!meta.ok()) {
    raise_runtime_error(method + ": metadata", meta.error());
  }
  return nb::cast(MethodView{std::move(program), *meta});
}

}  // namespace pte_arenas

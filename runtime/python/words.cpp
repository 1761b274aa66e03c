#include "words.h"

#include <nanobind/stl/string.h>

#include "torch_exchange.h"

namespace nb = nanobind;

namespace pte_arenas {
namespace {

std::string str_of(nb::handle object) {
  const nb::object text = nb::steal(PyObject_Str(object.ptr()));
  if (!text.is_valid()) {
    throw nb::python_error();
  }
  return nb::cast<std::string>(text);
}

/// `float32` of `torch.float32`
std::string last_part_of(const std::string& name) {
  return name.substr(name.find('.') + 1);
}

}  // namespace

std::string inputs_in_words(size_t count) {
  return std::to_string(count) + (count == 1 ? " input" : " inputs");
}

std::string found_in_words(nb::handle value) {
  if (value.is_none()) {
    return "None";
  }
  std::string type = Py_TYPE(value.ptr())->tp_name;
  if (const TorchExchange& torch = TorchExchange::get();
      torch.is_tensor(value)) {
    const std::string device = str_of(value.attr("device"));
    const std::string layout = str_of(value.attr("layout"));
    std::string text = last_part_of(str_of(value.attr("dtype"))) +
                       " of sizes " +
                       str_of(nb::tuple(nb::object(value.attr("shape"))));
    if (device != "cpu") {
      text += " on " + device;
    } else if (layout != "torch.strided") {
      text += " in " + last_part_of(layout) + " layout";
    } else if (dlpack::Tensor tensor; !torch.describe(value, &tensor)) {
      text += " whose memory torch does not give, as inside of torch.func";
    }
    return text;
  }
  if (PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr())) {
    return (PyBool_Check(value.ptr()) ? "" : "the " + type + " ") +
           str_of(value);
  }
  return type;
}

std::string found_instead_of_tensor(nb::handle value) {
  std::string text = found_in_words(value);
  return text == "numpy.ndarray" ? text + ": torch.from_numpy makes it a tensor"
                                 : text;
}

std::string repr_of(nb::handle object) {
  const nb::object text = nb::steal(PyObject_Repr(object.ptr()));
  if (!text.is_valid()) {
    throw nb::python_error();
  }
  return nb::cast<std::string>(text);
}

}  // namespace pte_arenas

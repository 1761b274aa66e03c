// What the process has registered: backends and operators.

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <set>
#include <string>
#include <vector>

#include "registries.h"

namespace nb = nanobind;

namespace pte_arenas {
namespace {

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  const size_t count = executorch::runtime::get_num_registered_backends();
  for (size_t i = 0; i < count; ++i) {
    const auto name = executorch::runtime::get_backend_name(i);
    if (name.ok()) {
      names.emplace_back(*name);
    }
  }
  return names;
}

bool is_backend_available(const std::string& name) {
  const auto* const backend =
      executorch::runtime::get_backend_class(name.c_str());
  return backend != nullptr && backend->is_available();
}

/// An operator may have a kernel for each of several element types.
std::set<std::string> operator_names() {
  std::set<std::string> names;
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) {
    if (kernel.name_ != nullptr) {
      names.emplace(kernel.name_);
    }
  }
  return names;
}

}  // namespace

void define_registries(nb::module_& module) {
  module.def("backend_names", &backend_names,
             "Names of the registered backends.");
  module.def("is_backend_available", &is_backend_available, nb::arg("name"),
             "Whether a backend is registered and can run here.");
  module.def("operator_names", &operator_names,
             "Names of the operators that have a kernel.");
}

}  // namespace pte_arenas

#pragma once

#include <nanobind/nanobind.h>

namespace pte_arenas {

/// Adds backend_names(), is_backend_available(name) and operator_names().
void define_registries(nanobind::module_& module);

}  // namespace pte_arenas

#pragma once

#include <nanobind/nanobind.h>

namespace pte_arenas {

/// Adds verify(data) and check(data).
void define_checking(nanobind::module_& module);

}  // namespace pte_arenas

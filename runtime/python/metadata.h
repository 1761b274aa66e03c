#pragma once

#include <nanobind/nanobind.h>

#include "handles.h"

namespace pte_arenas {

/// Adds the classes MethodMeta and TensorInfo, named as in executorch.runtime.
void define_metadata(nanobind::module_& module);

/// The metadata of a method. Throws ArenaError if the program has none such.
nanobind::object metadata_of(const ProgramHandle& program,
                             const std::string& method);

}  // namespace pte_arenas

#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "handles.h"

namespace pte_arenas {

/// Adds the classes MethodMeta and TensorInfo, named as in executorch.runtime.
void define_metadata(nanobind::module_& module);

/// The metadata of a method that the program has.
nanobind::object metadata_of(
    std::shared_ptr<const ProgramHandle::Program> program,
    const std::string& method);

}  // namespace pte_arenas

#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <string>

/// @file
/// How messages name what a caller gave. Needs the GIL.

namespace pte_arenas {

/// `1 input`, `2 inputs`
std::string inputs_in_words(size_t count);

/// `float32 of sizes (2, 3)`, `the int 3`, or a type.
std::string found_in_words(nanobind::handle value);

/// The same where torch could make a tensor of it.
std::string found_instead_of_tensor(nanobind::handle value);

/// Python's repr().
std::string repr_of(nanobind::handle object);

}  // namespace pte_arenas

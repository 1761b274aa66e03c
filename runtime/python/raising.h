#pragma once

#include <executorch/extension/arenas/finding.h>
#include <executorch/runtime/core/error.h>
#include <nanobind/nanobind.h>

#include <string>

/**
 * @file
 * Python exceptions. Each function throws, with the GIL held.
 */

namespace pte_arenas {

/// pte_arenas.InvalidProgramError
[[noreturn]] void raise_invalid_program(
    const executorch::extension::arenas::Finding& finding);

[[noreturn]] void raise_invalid_program(const std::string& where,
                                        const std::string& message);

/**
 * For a finding that a session or a method was refused with: MemoryError,
 * RuntimeError for a device that is not there, ArenaError for what the caller
 * gave, else InvalidProgramError.
 */
[[noreturn]] void raise_finding(
    executorch::runtime::Error error,
    const executorch::extension::arenas::Finding& finding);

/// pte_arenas.ArenaError
[[noreturn]] void raise_wrong_use(const std::string& message);

[[noreturn]] void raise_value_error(const std::string& message);
[[noreturn]] void raise_type_error(const std::string& message);
[[noreturn]] void raise_index_error(const std::string& message);
[[noreturn]] void raise_memory_error(const std::string& message);

/// OSError, or the class of its that is for an errno.
[[noreturn]] void raise_os_error(int error, nanobind::handle path);

/// RuntimeError with a sentence of its own.
[[noreturn]] void raise_runtime_error(const std::string& message);

/**
 * RuntimeError for an error of ExecuTorch, with its name and code.
 *
 * @param[in] what What failed, such as `detect: execution`.
 */
[[noreturn]] void raise_runtime_error(const std::string& what,
                                      executorch::runtime::Error error);

/// `Error::InvalidArgument (0x12)`
std::string name_of(executorch::runtime::Error error);

}  // namespace pte_arenas

#pragma once

#include <executorch/extension/arenas/finding.h>
#include <executorch/runtime/core/error.h>

#include <cstdint>

#include "program_reader.h"

/**
 * @file
 * The rules of docs/checks.md, in the order that it gives. Each function stops
 * at the first broken rule: it fills `finding` unless that is null and returns
 * Error::InvalidProgram.
 */

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// Everything below the structure.
runtime::Error check_program(const ProgramReader& program, uint64_t size_max,
                             Finding* finding);

/**
 * The table of arenas and slots.
 *
 * @param[in] size_max `SIZE_MAX` of the target; tests give a smaller one.
 */
runtime::Error check_arenas(const ProgramReader& program, uint64_t size_max,
                            Finding* finding);

/**
 * One slot by itself, and against its arena and the initial values.
 *
 * @param[in] arena The arena, `a` its index.
 * @param[in] s Index of the slot in the arena.
 */
runtime::Error check_slot(const ArenaReader& arena, size_t a, size_t s,
                          const InitialDataReader& initial_data,
                          Finding* finding);

/// One plan: its bindings, then its tensors in bound memory.
runtime::Error check_plan(const ProgramReader& program, size_t plan,
                          Finding* finding);

/// The tensors of a plan, whose bindings are sound, in bound memory.
runtime::Error check_tensors(const ProgramReader& program, size_t plan,
                             Finding* finding);

/**
 * What ExecuTorch takes for granted when it loads and runs a method: no rules
 * of docs/checks.md, which are about memory, but those of docs/security.md.
 */
runtime::Error check_method(const ProgramReader& program, size_t plan,
                            Finding* finding);

/// The part of it about instructions.
runtime::Error check_instructions(const ProgramReader& program, size_t plan,
                                  Finding* finding);

/// How many dimensions a tensor may have (kTensorDimensionLimit).
constexpr size_t kMaxRank = 16;

/// The first thing wrong with the sizes of a tensor.
struct SizesFault {
  enum class Kind { None, Rank, Negative, Overflow } kind = Kind::None;
  /// The negative dimension.
  size_t dim = 0;
};

/**
 * Multiplies sizes and width.
 *
 * @param[out] nbytes Set unless there is a fault.
 */
SizesFault product_of(runtime::Span<const int32_t> sizes, size_t width,
                      uint64_t* nbytes);

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

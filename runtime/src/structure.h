#pragma once

#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/span.h>

#include <cstdint>

#include "program_header.h"
#include "program_reader.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/**
 * Checks everything structural: the FlatBuffer, the bounds of the segments and
 * the encoding of names.
 *
 * @param[in] program The whole FlatBuffer; at least `header.program_size`.
 *
 * @returns A reader of the root table, absent if the data is damaged.
 */
ProgramReader verify_structure(runtime::Span<const uint8_t> program,
                               const ProgramHeader& header, uint64_t file_size);

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

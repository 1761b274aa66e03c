#pragma once

#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// What the `eh00` header says, with the file's size for what it does not.
struct ProgramHeader {
  /// Bytes of the FlatBuffer at the start of the file.
  uint64_t program_size = 0;
  /// First byte of the segments; 0 if the file has no header or no segments.
  uint64_t segment_base = 0;
};

/**
 * Reads the header in the first 64 bytes of a file.
 *
 * @returns False if the file is too short, or the sizes do not fit it.
 */
bool read_header(runtime::Span<const uint8_t> head, uint64_t file_size,
                 ProgramHeader* header);

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// Bytes to and from open files, without the GIL. Return 0 or an errno.

namespace pte_arenas {

/// Reserves room on the disk, where the file system can, so that a full disk
/// shows before anything is written, and the file lies in one piece.
int reserve(int file, uint64_t size);

/// Writes at an offset and tells the system to begin at once with what a later
/// fsync waits for.
int write_at(int file, uint64_t offset, const uint8_t* data, size_t size);

/// Reads at an offset; `*done` is less than `size` where the file ends.
int read_at(int file, uint64_t offset, uint8_t* data, size_t size,
            size_t* done);

}  // namespace pte_arenas

#pragma once

#include <executorch/extension/arenas/namespace.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// Bytes [offset, offset + size) of a block.
struct ByteRange {
  size_t offset;
  size_t size;
};

inline bool operator==(const ByteRange& a, const ByteRange& b) {
  return a.offset == b.offset && a.size == b.size;
}

/// Apart from each other and in the order of their offsets.
using ByteRanges = std::vector<ByteRange>;

size_t bytes_in(const ByteRanges& ranges);

/// What is in either.
ByteRanges united(const ByteRanges& a, const ByteRanges& b);

/// What is in `a` and not in `b`.
ByteRanges without(const ByteRanges& a, const ByteRanges& b);

/**
 * The pages of a private mapping that are this process's own, in memory or
 * swapped out: those that were written. Pages that were only read are the
 * system's zeros or the mapped file's.
 *
 * @param[in] begin Beginning of a page.
 * @param[in] size In bytes; the last range ends there.
 *
 * @returns Nothing where the system does not tell.
 */
std::optional<ByteRanges> written_pages(const uint8_t* begin, size_t size);

/// The two ways to ask, for tests: PAGEMAP_SCAN, of Linux 6.7, and reading an
/// entry of /proc/self/pagemap for every page.
std::optional<ByteRanges> written_pages_by_scan(const uint8_t* begin,
                                                size_t size);
std::optional<ByteRanges> written_pages_by_entry(const uint8_t* begin,
                                                 size_t size);

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

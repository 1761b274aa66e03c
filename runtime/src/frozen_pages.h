#pragma once

#include <executorch/extension/arenas/namespace.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "touched_pages.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/**
 * The bytes of a block at one moment, in memory that nobody can write any more.
 * Blocks that start from them map them privately, and the system copies a page
 * when one of them writes it.
 */
class FrozenPages final {
 public:
  /**
   * @param[in] block Where to copy from.
   * @param[in] size Of what will be mapped, at least that of the block.
   * @param[in] ranges What to copy; the rest is zeros.
   *
   * @returns Null where the system has no such memory.
   */
  static std::shared_ptr<const FrozenPages> freeze(const uint8_t* block,
                                                   size_t size,
                                                   ByteRanges ranges);

  FrozenPages(const FrozenPages&) = delete;
  FrozenPages& operator=(const FrozenPages&) = delete;
  ~FrozenPages();

  /// Takes the place of what is mapped at a page; the bytes there become the
  /// frozen ones. On failure they stay as they are.
  bool map_at(uint8_t* address) const;

  /// Outside of them everything is zeros.
  const ByteRanges& ranges() const { return ranges_; }

 private:
  FrozenPages(int fd, size_t size, ByteRanges ranges);

  int fd_;
  size_t size_;
  ByteRanges ranges_;
};

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

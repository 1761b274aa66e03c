#pragma once

#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

namespace internal {
class FrozenPages;
}  // namespace internal

/**
 * A block of host memory that starts as zeros.
 *
 * Large blocks are pages that the system maps when they are first touched, so
 * that their size costs neither time nor resident memory. Owns the block.
 *
 * At least `kReadableBehind` bytes behind the block can be read: XNNPACK's
 * kernels read whole vectors and so beyond the end of a tensor (its
 * XNN_EXTRA_BYTES), which may be the end of the block. Nothing is written
 * there.
 */
class ET_ARENAS_API ZeroedMemory final {
 public:
  /// How many bytes behind the block belong to it for reading.
  static constexpr size_t kReadableBehind = 64;

  /**
   * @param[in] size In bytes; 0 gives a block of no bytes at a valid address.
   * @param[in] alignment Of the first byte; a power of two.
   *
   * @retval Error::InvalidArgument The size overflows with what is around the
   *     block, or `alignment` is no power of two.
   * @retval Error::MemoryAllocationFailed The system has no such block.
   */
  static runtime::Result<ZeroedMemory> allocate(size_t size, size_t alignment);

  ZeroedMemory(ZeroedMemory&& other) noexcept;
  ZeroedMemory& operator=(ZeroedMemory&& other) noexcept;
  ZeroedMemory(const ZeroedMemory&) = delete;
  ZeroedMemory& operator=(const ZeroedMemory&) = delete;
  ~ZeroedMemory();

  /// The block; valid as long as this object or the one it was moved to.
  runtime::Span<uint8_t> span() const { return {data_, size_}; }

  /**
   * Makes a range of bytes zeros again. Whole pages of large blocks go back to
   * the system where it can take them.
   *
   * @param[in] offset,size A range inside the block.
   */
  void zero(size_t offset, size_t size);

  /**
   * Makes the bytes of this block those of another. Where the system can tell,
   * only pages that were written are read and written.
   *
   * @param[in] other A block of the same size.
   */
  void assign(const ZeroedMemory& other);

  /**
   * Makes the bytes of another block those of this one, by copying a page only
   * when either block writes it. What this block wrote since it was shared last
   * is copied at once.
   *
   * The bytes of this block stay the same, at the same address. Where the
   * system cannot do it, the same as `other->assign(*this)`.
   *
   * @param[in] other A block of the same size.
   */
  void share_with(ZeroedMemory* other);

 private:
  ZeroedMemory(uint8_t* data, size_t size, void* base, size_t mapped_size)
      : data_(data), size_(size), base_(base), mapped_size_(mapped_size) {}

  void free();
  void zero_frozen(size_t offset, size_t size);
  /// Makes `frozen_` what the block is now, unless it nearly is.
  bool freeze();

  uint8_t* data_;
  size_t size_;
  /// What to give back: a mapping, or a block of malloc if `mapped_size_` is 0.
  void* base_;
  size_t mapped_size_;
  /// What the pages start from instead of zeros, if they were ever shared.
  std::shared_ptr<const internal::FrozenPages> frozen_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

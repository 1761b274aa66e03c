#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "dlpack.h"

namespace pte_arenas {

class SpareBlocks;

/**
 * A tensor for torch: its description, and behind it in the same block of the
 * heap its elements, unless they are in memory that it shares.
 */
struct TensorBlock {
  static constexpr size_t kMaxRank = 16;

  dlpack::ManagedTensor managed;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
  /// Keeps the elements where they are not in the block.
  std::shared_ptr<const void> owner;
  /// Bytes that the block has for elements.
  size_t capacity = 0;
  /// Where the block goes when it is deleted, if that is still there.
  std::weak_ptr<SpareBlocks> spare;

  struct Delete {
    void operator()(TensorBlock* block) const;
  };
  using Owner = std::unique_ptr<TensorBlock, Delete>;

  /**
   * Null if there is no memory.
   *
   * @param[in] spare Blocks to reuse, and to give a large block back to; may be
   * null.
   */
  static Owner allocate(size_t nbytes,
                        const std::shared_ptr<SpareBlocks>& spare = nullptr);

  /// Takes over the type and shape of a tensor, whose elements are at `data`.
  void describe(const executorch::aten::Tensor& tensor, void* data);

  char* data();
};

/**
 * Large blocks that their users have dropped, for the next outputs of the same
 * size: memory that is fresh from the system costs a page fault for every page,
 * which is more than copying to it. From any thread, without waiting.
 */
class SpareBlocks final {
 public:
  SpareBlocks() = default;
  SpareBlocks(const SpareBlocks&) = delete;
  SpareBlocks& operator=(const SpareBlocks&) = delete;
  ~SpareBlocks();

  /// Smaller ones the heap reuses well.
  static constexpr size_t kMinBytes = size_t{128} << 10;

  /// A block of at least so many bytes and not twice as many, or null.
  TensorBlock* take(size_t nbytes);

  /// The block that had to leave for it, or null.
  TensorBlock* keep(TensorBlock* block);

 private:
  std::array<std::atomic<TensorBlock*>, 4> blocks_{};
  std::atomic<size_t> oldest_{0};
};

}  // namespace pte_arenas

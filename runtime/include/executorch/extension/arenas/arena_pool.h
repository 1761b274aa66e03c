#pragma once

#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/memory_block.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/// Memory of the caller's in place of an arena's own.
struct BorrowedArena {
  /// Name of the arena.
  std::string_view arena;
  /// At least as large and as aligned as the arena, on its device. The arena is
  /// its first bytes.
  runtime::Span<uint8_t> memory;
  /// Whether the contents are the arena's state (retained memory, say), or are
  /// to be overwritten with initial values.
  bool keep = false;
};

class ArenaPool;

/// Where the memory of arenas comes from; the pool allocates the others.
struct ArenaSources {
  /// Memory must outlive the pool and be apart from each other.
  runtime::Span<const BorrowedArena> borrowed;
  /// Another pool of the same table, the scratch arenas of which this one
  /// shares; or null.
  const ArenaPool* scratch_from = nullptr;
};

/**
 * The bytes of a program's arenas: one block per arena.
 *
 * Arenas start as zeros, but for borrowed memory that is kept, and for scratch;
 * initial values are the session's business.
 */
class ET_ARENAS_API ArenaPool final {
 public:
  /**
   * Takes borrowed memory and allocates the rest, lazily on the host, with the
   * declared alignment. Writes no borrowed byte unless it succeeds in that.
   *
   * @param[in] table What the program declares.
   * @param[in] sources See there.
   * @param[out] finding If not null, filled on failure.
   *
   * @retval Error::InvalidArgument A source does not fit its arena.
   * @retval Error::NotSupported No allocator is registered for the device of an
   *     arena.
   * @retval Error::MemoryAllocationFailed There is no such block.
   * @returns Other errors of a device's allocator.
   */
  static runtime::Result<ArenaPool> create(const ArenaTable& table,
                                           const ArenaSources& sources = {},
                                           Finding* finding = nullptr);

  ArenaPool(ArenaPool&&) noexcept = default;
  ArenaPool& operator=(ArenaPool&&) noexcept = default;

  /// One span per arena, in the order of the table; valid as long as the pool.
  runtime::Span<const runtime::Span<uint8_t>> spans() const {
    return {spans_.data(), spans_.size()};
  }

  /// The memory of an arena, as large as declared.
  MemoryBlock& block(size_t arena) { return *blocks_[arena]; }
  const MemoryBlock& block(size_t arena) const { return *blocks_[arena]; }

  /// Whether the arena has its state already: it is borrowed and kept.
  bool is_kept(size_t arena) const { return kept_[arena]; }

  /// Whether an address lies inside an arena.
  bool contains(const void* address) const;

 private:
  using Blocks = std::vector<std::shared_ptr<MemoryBlock>>;

  ArenaPool(Blocks blocks, std::vector<bool> kept);

  /// Shared, since pools may have scratch arenas in common.
  Blocks blocks_;
  std::vector<runtime::Span<uint8_t>> spans_;
  std::vector<bool> kept_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

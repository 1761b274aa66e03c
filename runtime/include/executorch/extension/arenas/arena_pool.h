#pragma once

#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/extension/arenas/zeroed_memory.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/**
 * The bytes of a program's arenas: one span per arena, owned, on the host.
 *
 * Starts as zeros; initial values are the session's business.
 */
class ET_ARENAS_API ArenaPool final {
 public:
  /**
   * Allocates every arena of a table, lazily and with the declared alignment.
   *
   * @param[in] table What the program declares.
   * @param[out] finding If not null, filled on failure.
   *
   * @retval Error::NotSupported An arena is declared on a device.
   * @retval Error::MemoryAllocationFailed The system has no such block.
   */
  static runtime::Result<ArenaPool> allocate(const ArenaTable& table,
                                             Finding* finding = nullptr);

  ArenaPool(ArenaPool&&) noexcept = default;
  ArenaPool& operator=(ArenaPool&&) noexcept = default;

  /// One span per arena, in the order of the table; valid as long as the pool.
  runtime::Span<const runtime::Span<uint8_t>> spans() const {
    return {spans_.data(), spans_.size()};
  }

  /// Whether an address lies inside an arena.
  bool contains(const void* address) const;

  /// Makes a range of bytes of an arena zeros again.
  void zero(size_t arena, size_t offset, size_t size) {
    memory_[arena].zero(offset, size);
  }

 private:
  ArenaPool() = default;

  std::vector<ZeroedMemory> memory_;
  std::vector<runtime::Span<uint8_t>> spans_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

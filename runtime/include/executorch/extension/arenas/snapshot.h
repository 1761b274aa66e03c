#pragma once

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/extension/arenas/zeroed_memory.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/**
 * The state of a session at one moment, in host memory of its own.
 *
 * Belongs to a program, which it keeps alive, and fits every session of it. Has
 * the bytes of state arenas, not those of scratch arenas. Where the system can
 * tell, it takes as much memory as the session had written.
 */
class ET_ARENAS_API Snapshot final {
 public:
  /// Of no program, for `Session::snapshot()` to fill.
  Snapshot() = default;

  /**
   * All zeros, for callers who keep states themselves and fill it by `arena()`
   * or `slot()`.
   *
   * @param[in] program Shared with sessions.
   *
   * @retval Error::MemoryAllocationFailed The system has no such memory.
   */
  static runtime::Result<Snapshot> create(
      std::shared_ptr<const ArenaProgram> program);

  Snapshot(Snapshot&&) noexcept = default;
  Snapshot& operator=(Snapshot&&) noexcept = default;

  /// Null for a snapshot of no program.
  const std::shared_ptr<const ArenaProgram>& program() const {
    return program_;
  }

  /// The bytes of a state arena, valid as long as the snapshot.
  /// @retval Error::NotFound No state arena has this name.
  runtime::Result<runtime::Span<uint8_t>> arena(std::string_view name) const;

  /// The bytes of a slot, valid as long as the snapshot.
  /// @retval Error::NotFound No state arena or slot has this name.
  runtime::Result<runtime::Span<uint8_t>> slot(std::string_view arena,
                                               std::string_view name) const;

 private:
  friend class Session;

  Snapshot(std::shared_ptr<const ArenaProgram> program,
           std::vector<ZeroedMemory> memory)
      : program_(std::move(program)), memory_(std::move(memory)) {}

  std::shared_ptr<const ArenaProgram> program_;
  /// One block per arena, in the order of the table; empty for scratch.
  std::vector<ZeroedMemory> memory_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

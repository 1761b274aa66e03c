#pragma once

#include <executorch/extension/arenas/arena_pool.h>
#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/error.h>

#include <cstddef>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/// Copies initial values from the file into arenas, slot by slot.
class InitialValues final {
 public:
  InitialValues(const ArenaTable& table, const runtime::DataLoader& file)
      : table_(table), file_(file) {}

  /// Fills arenas that hold zeros, and leaves the pages of zero slots
  /// untouched; passes over those that are kept. Tells which value cannot be
  /// written in `finding` if that is not null.
  runtime::Error write(ArenaPool* pool, Finding* finding) const;

  /// Gives one arena its initial bytes again, those between slots included.
  runtime::Error reset(ArenaPool* pool, size_t arena) const;

  /// Gives one slot its initial bytes again.
  runtime::Error reset(ArenaPool* pool, size_t arena, size_t slot) const;

 private:
  /// Does nothing to a slot without an initial value.
  runtime::Error write_slot(MemoryBlock* memory, size_t arena, size_t slot,
                            Finding* finding) const;
  runtime::Error write_arena(MemoryBlock* memory, size_t arena,
                             Finding* finding) const;

  const ArenaTable& table_;
  const runtime::DataLoader& file_;
};

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

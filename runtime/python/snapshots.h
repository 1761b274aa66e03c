#pragma once

#include <executorch/extension/arenas/snapshot.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pte_arenas {

/// A snapshot as Python holds it. Like a session, its mutex is only taken
/// without the GIL; together with a session's, after it.
class SnapshotHandle final {
 public:
  using Snapshot = executorch::extension::arenas::Snapshot;
  /// Arena, slot, and where in the file its bytes begin.
  using SlotInFile = std::tuple<std::string, std::string, uint64_t>;

  explicit SnapshotHandle(Snapshot snapshot) : snapshot_(std::move(snapshot)) {}

  /// Fills slots from an open file. Throws OSError.
  /// @returns False if the file ends before it.
  bool read(int file, nanobind::handle path,
            const std::vector<SlotInFile>& slots);

  /// 0 for a slot without bytes.
  int largest_byte(const std::string& arena, const std::string& name);

 private:
  friend class SessionHandle;

  Snapshot snapshot_;
  std::mutex mutex_;
};

/// Adds the class Snapshot.
void define_snapshots(nanobind::module_& module);

}  // namespace pte_arenas

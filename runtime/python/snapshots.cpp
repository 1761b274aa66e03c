// State as a whole: snapshots, forks, and the bytes of state files.

#include "snapshots.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>

#include "file_bytes.h"
#include "handles.h"
#include "raising.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::Finding;
using executorch::extension::arenas::Session;
using executorch::extension::arenas::Snapshot;
using executorch::runtime::Error;
using executorch::runtime::Result;
using executorch::runtime::Span;

namespace {

void raise_if_failed(const char* what, Error error) {
  if (error == Error::MemoryAllocationFailed) {
    raise_memory_error(std::string(what) +
                       ": expected memory for the state but found none");
  }
  if (error != Error::Ok) {
    raise_runtime_error(what, error);
  }
}

void raise_if_failed(int error, nb::handle path) {
  if (error != 0) {
    raise_os_error(error, path);
  }
}

bool has_device_arenas(const ArenaTable& table) {
  for (size_t a = 0; a < table.num_arenas(); ++a) {
    if (!table.arena(a).device.is_cpu()) {
      return true;
    }
  }
  return false;
}

/// Where the bytes of slots can be read on the host.
class ReadableSlots final {
 public:
  /// Copies the state only if some of it is on a device.
  Error open(Session* session) {
    session_ = session;
    return has_device_arenas(session->program()->table())
               ? session->snapshot(&snapshot_)
               : Error::Ok;
  }

  Result<Span<uint8_t>> slot(const std::string& arena,
                             const std::string& name) const {
    return snapshot_.program() == nullptr ? session_->slot(arena, name)
                                          : snapshot_.slot(arena, name);
  }

 private:
  Session* session_ = nullptr;
  Snapshot snapshot_;
};

}  // namespace

bool SnapshotHandle::read(int file, nb::handle path,
                          const std::vector<SlotInFile>& slots) {
  int failed = 0;
  bool is_whole = true;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [arena, name, offset] : slots) {
      const auto bytes = snapshot_.slot(arena, name);
      if (!bytes.ok()) {
        failed = EINVAL;
        break;
      }
      size_t done = 0;
      failed = read_at(file, offset, bytes->data(), bytes->size(), &done);
      is_whole = done == bytes->size();
      if (failed != 0 || !is_whole) {
        break;
      }
    }
  }
  raise_if_failed(failed, path);
  return is_whole;
}

int SnapshotHandle::largest_byte(const std::string& arena,
                                 const std::string& name) {
  const nb::gil_scoped_release no_gil;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto bytes = snapshot_.slot(arena, name);
  return bytes.ok() && !bytes->empty()
             ? *std::max_element(bytes->begin(), bytes->end())
             : 0;
}

std::shared_ptr<SnapshotHandle> ProgramHandle::blank_snapshot() const {
  Result<Snapshot> snapshot = Snapshot::create(program_);
  raise_if_failed("snapshot", snapshot.error());
  return std::make_shared<SnapshotHandle>(std::move(*snapshot));
}

std::shared_ptr<SnapshotHandle> SessionHandle::snapshot(
    std::shared_ptr<SnapshotHandle> into) {
  if (into == nullptr) {
    into = std::make_shared<SnapshotHandle>(Snapshot());
  }
  Error error = Error::Ok;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::lock_guard<std::mutex> into_lock(into->mutex_);
    error = session_->snapshot(&into->snapshot_);
  }
  raise_if_failed("snapshot", error);
  return into;
}

void SessionHandle::restore(SnapshotHandle& from,
                            const std::vector<std::string>& arenas) {
  const std::vector<std::string_view> names(arenas.begin(), arenas.end());
  bool is_ours = true;
  Error error = Error::Ok;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::lock_guard<std::mutex> from_lock(from.mutex_);
    is_ours = from.snapshot_.program() == session_->program();
    if (is_ours) {
      error = session_->restore(from.snapshot_, {names.data(), names.size()});
    }
  }
  if (!is_ours) {
    raise_wrong_use(
        "expected a snapshot of the session's own program but found one of "
        "another program, or of the same file loaded another time: take "
        "snapshots of sessions of one loaded program, or use save and load");
  }
  raise_if_failed("restore", error);
}

std::shared_ptr<SessionHandle> SessionHandle::fork(bool copy_on_write) {
  Finding finding;
  Error error = Error::Ok;
  std::unique_ptr<Session> session;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    auto forked = session_->fork({copy_on_write}, &finding);
    error = forked.error();
    session = forked.ok() ? std::move(*forked) : nullptr;
  }
  if (error != Error::Ok && finding.path[0] != '\0') {
    raise_finding(error, finding);
  }
  raise_if_failed("fork", error);
  Resources resources;
  resources.backend_options = resources_.backend_options;
  return std::make_shared<SessionHandle>(
      std::move(session), std::make_shared<std::mutex>(), std::move(resources));
}

void SessionHandle::write(int file, nb::handle path, const nb::bytes& head,
                          const std::vector<SlotName>& names) {
  const auto* const begin = static_cast<const uint8_t*>(head.data());
  const size_t head_size = head.size();
  int failed = 0;
  Error error = Error::Ok;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    ReadableSlots slots;
    error = slots.open(session_.get());
    std::vector<Span<uint8_t>> bytes;
    uint64_t size = head_size;
    for (size_t i = 0; error == Error::Ok && i < names.size(); ++i) {
      const auto slot = slots.slot(names[i].first, names[i].second);
      error = slot.error();
      if (slot.ok()) {
        bytes.push_back(*slot);
        size += slot->size();
      }
    }
    if (error == Error::Ok) {
      failed = reserve(file, size);
      if (failed == 0) {
        failed = write_at(file, 0, begin, head_size);
      }
      uint64_t offset = head_size;
      for (size_t i = 0; failed == 0 && i < bytes.size(); ++i) {
        failed = write_at(file, offset, bytes[i].data(), bytes[i].size());
        offset += bytes[i].size();
      }
    }
  }
  raise_if_failed("save", error);
  raise_if_failed(failed, path);
}

void define_snapshots(nb::module_& module) {
  nb::class_<SnapshotHandle>(module, "Snapshot",
                             "The state of a session at one moment.")
      .def("read", &SnapshotHandle::read, nb::arg("file"), nb::arg("path"),
           nb::arg("slots"),
           nb::sig("def read(self, file: int, path: str, slots: "
                   "collections.abc.Sequence[tuple[str, str, int]]) -> bool"),
           "Fills slots from an open file: arena, slot, offset. Tells whether "
           "it has them all.")
      .def("largest_byte", &SnapshotHandle::largest_byte, nb::arg("arena"),
           nb::arg("slot"), "The largest byte of a slot; 0 if it has none.");
}

}  // namespace pte_arenas

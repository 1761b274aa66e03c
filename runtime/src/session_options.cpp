#include "session_options.h"

#include <string>

#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

using runtime::Error;
using runtime::Result;

namespace {

/// Whether a method with an XNNPACK delegate uses the arena.
bool is_read_behind(const ArenaProgram& program, size_t arena) {
  const ArenaTable& table = program.table();
  for (size_t m = 0; m < table.num_methods(); ++m) {
    const std::string name(table.method_name(m));
    const auto meta = program.program().method_meta(name.c_str());
    if (!meta.ok() || !meta->uses_backend(kXnnpackBackend)) {
      continue;
    }
    for (size_t i = 0; i < table.num_planned_buffers(m); ++i) {
      if (table.planned_buffer(m, i).arena == arena) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

Error check_options(const ArenaProgram& program, const SessionOptions& options,
                    Finding* finding) {
  if (options.scratch_from != nullptr &&
      options.scratch_from->program().get() != &program) {
    write_path(finding, "scratch_from");
    (void)refuse(finding,
                 "expected a session of the same program but found one of "
                 "another");
    return Error::InvalidArgument;
  }
  for (size_t i = 0; i < options.borrowed.size(); ++i) {
    const BorrowedArena& source = options.borrowed[i];
    const Result<size_t> a = program.table().find_arena(source.arena);
    if (!a.ok() || !is_read_behind(program, *a)) {
      continue;  // an unknown name is the pool's business
    }
    const size_t size = program.table().arena(*a).size;
    if (source.memory.size() < size + ZeroedMemory::kReadableBehind) {
      write_path(finding, "borrowed[", uint64_t{i}, "].memory");
      (void)refuse(finding, "expected at least ",
                   uint64_t{size + ZeroedMemory::kReadableBehind},
                   " bytes for arena ", Name{source.arena},
                   ", of which XNNPACK"
                   " reads the last ",
                   uint64_t{ZeroedMemory::kReadableBehind}, ", but found ",
                   uint64_t{source.memory.size()});
      return Error::InvalidArgument;
    }
  }
  return Error::Ok;
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

#pragma once

#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/named_data_map.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/executor/program.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

namespace internal {
class DataFiles;
class ProgramLoader;
}  // namespace internal

/// How the bytes of a file come into memory.
enum class LoadMode {
  /// Pages of the file, shared with other processes and read when touched.
  /// The file must not change while the program lives.
  Mmap,
  /// The same, all read and locked; fails where the system forbids it.
  MmapUseMlock,
  /// The same, locked where the system allows it.
  MmapUseMlockIgnoreErrors,
  /// Pages of the file, which the system is told to read ahead.
  MmapUseMadvise,
  /// Read into memory of the process.
  File,
};

struct LoadOptions {
  /// Of the program's file and of the data files.
  LoadMode mode = LoadMode::Mmap;

  /// Paths of `.ptd` files with constants that are outside of the program.
  std::vector<std::string> data_files = {};

  /// Says that the methods of a program without arenas share no memory. A
  /// program may look as if they did: each plans as many bytes of memory id 2,
  /// where ExecuTorch puts mutable buffers that it shares. Without this it is
  /// refused. A program whose methods do share memory is made one with arenas
  /// by `pte-arenas adopt`.
  bool is_unshared = false;

  /// What ExecuTorch itself verifies besides the rules of docs/checks.md.
  executorch::ET_RUNTIME_NAMESPACE::Program::Verification verification =
      executorch::ET_RUNTIME_NAMESPACE::Program::Verification::
          InternalConsistency;
};

/**
 * A program with its data and its arena table: what sessions share.
 *
 * Immutable; may be used from several threads. Whatever it gives out is valid
 * as long as the program itself.
 */
class ET_ARENAS_API ArenaProgram final {
 public:
  using Program = executorch::ET_RUNTIME_NAMESPACE::Program;

  using NamedDataMap = executorch::ET_RUNTIME_NAMESPACE::NamedDataMap;

  /**
   * Loads and checks a program; allocates no arena.
   *
   * @param[in] loader Where the bytes come from.
   * @param[out] finding If not null, filled with the first broken rule when the
   *     result is Error::InvalidProgram, and when the file keeps all of them
   *     but is ambiguous or `Program::load()` refuses it.
   * @param[in] options See there.
   *
   * @retval Error::InvalidProgram The file breaks a rule of docs/checks.md.
   * @retval Error::InvalidArgument It cannot be told whether the methods share
   *     memory; see `LoadOptions::is_unshared`.
   * @returns Other errors of the loaders or of `Program::load()`.
   */
  static runtime::Result<std::shared_ptr<const ArenaProgram>> load(
      std::unique_ptr<runtime::DataLoader> loader, Finding* finding = nullptr,
      const LoadOptions& options = {});

  /// Loads from a file.
  static runtime::Result<std::shared_ptr<const ArenaProgram>> load(
      const char* path, Finding* finding = nullptr,
      const LoadOptions& options = {});

  /// Loads from memory, which must outlive the program and be aligned to
  /// `alignof(std::max_align_t)`.
  static runtime::Result<std::shared_ptr<const ArenaProgram>> load(
      const void* data, size_t size, Finding* finding = nullptr,
      const LoadOptions& options = {});

  ArenaProgram(const ArenaProgram&) = delete;
  ArenaProgram& operator=(const ArenaProgram&) = delete;
  ~ArenaProgram();

  const Program& program() const { return program_; }

  const ArenaTable& table() const { return table_; }

  /// Reads the initial values of slots.
  const runtime::DataLoader& loader() const;

  /// The constants of the data files; null if there are none.
  const NamedDataMap* data() const;

 private:
  ArenaProgram(std::unique_ptr<internal::ProgramLoader> loader,
               std::unique_ptr<internal::DataFiles> data_files,
               Program&& program, const ArenaTable& table);

  // The program and the table point into the loader's bytes.
  std::unique_ptr<internal::ProgramLoader> loader_;
  std::unique_ptr<internal::DataFiles> data_files_;
  Program program_;
  ArenaTable table_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

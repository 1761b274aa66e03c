#pragma once

#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/finding.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/executor/program.h>

#include <cstddef>
#include <memory>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

namespace internal {
class ProgramLoader;
}  // namespace internal

/**
 * A program with its data and its arena table: what sessions share.
 *
 * Immutable; may be used from several threads. Whatever it gives out is valid
 * as long as the program itself.
 */
class ET_ARENAS_API ArenaProgram final {
 public:
  using Program = executorch::ET_RUNTIME_NAMESPACE::Program;

  /// How the bytes of a file come into memory.
  enum class LoadMode {
    /// Pages of the file, shared with other processes and read when touched.
    /// The file must not change while the program lives.
    Mmap,
    /// Read into memory of the process.
    File,
  };

  /**
   * Loads and checks a program; allocates no arena.
   *
   * @param[in] loader Where the bytes come from.
   * @param[out] finding If not null, filled with the first broken rule when the
   *     result is Error::InvalidProgram, and when the file keeps all of them
   * but `Program::load()` refuses it.
   * @param[in] verification What ExecuTorch itself verifies besides.
   *
   * @retval Error::InvalidProgram The file breaks a rule of docs/checks.md.
   * @returns Other errors of the loader or of `Program::load()`.
   */
  static runtime::Result<std::shared_ptr<const ArenaProgram>> load(
      std::unique_ptr<runtime::DataLoader> loader, Finding* finding = nullptr,
      Program::Verification verification =
          Program::Verification::InternalConsistency);

  /// Loads from a file.
  static runtime::Result<std::shared_ptr<const ArenaProgram>> load(
      const char* path, LoadMode mode = LoadMode::Mmap,
      Finding* finding = nullptr,
      Program::Verification verification =
          Program::Verification::InternalConsistency);

  /// Loads from memory, which must outlive the program and be aligned to
  /// `alignof(std::max_align_t)`.
  static runtime::Result<std::shared_ptr<const ArenaProgram>> load(
      const void* data, size_t size, Finding* finding = nullptr,
      Program::Verification verification =
          Program::Verification::InternalConsistency);

  ArenaProgram(const ArenaProgram&) = delete;
  ArenaProgram& operator=(const ArenaProgram&) = delete;
  ~ArenaProgram();

  const Program& program() const { return program_; }

  const ArenaTable& table() const { return table_; }

  /// Reads the initial values of slots.
  const runtime::DataLoader& loader() const;

 private:
  ArenaProgram(std::unique_ptr<internal::ProgramLoader> loader,
               Program&& program, const ArenaTable& table);

  // The program and the table point into the loader's bytes.
  std::unique_ptr<internal::ProgramLoader> loader_;
  Program program_;
  ArenaTable table_;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

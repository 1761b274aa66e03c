#pragma once

#include <executorch/extension/arenas/arena_pool.h>
#include <executorch/extension/arenas/memory_block.h>
#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/span.h>

#include <memory>
#include <optional>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/**
 * What `Program` reads its file through.
 *
 * It serves the program's bytes from the copy that was checked, so that nothing
 * unchecked is ever parsed. And it keeps ExecuTorch from writing initial values
 * into arenas: a method's tensors in bound memory may carry them, for runtimes
 * that know no arenas, and `Program::load_method()` would write them over the
 * session's state. Those of private buffers on a device, where the CPU cannot
 * write, it copies there.
 */
class ProgramLoader final : public runtime::DataLoader {
 public:
  /// @param[in] program The first bytes of the file.
  ProgramLoader(std::unique_ptr<runtime::DataLoader> file,
                runtime::FreeableBuffer program)
      : file_(std::move(file)), program_(std::move(program)) {}

  runtime::Result<runtime::FreeableBuffer> load(
      size_t offset, size_t size, const SegmentInfo& info) const override;

  runtime::Error load_into(size_t offset, size_t size, const SegmentInfo& info,
                           void* buffer) const override;

  runtime::Result<size_t> size() const override { return file_->size(); }

  const runtime::DataLoader& file() const { return *file_; }

  /**
   * While it lives, this thread loads a method: into a pool's arenas nothing,
   * into private buffers as their device wants it. Threads differ because each
   * may load a method of another session.
   */
  class Protection final {
   public:
    Protection(const ArenaPool& arenas,
               runtime::Span<MemoryBlock> private_memory);
    Protection(const Protection&) = delete;
    Protection& operator=(const Protection&) = delete;
    ~Protection();

   private:
    friend class ProgramLoader;

    const ArenaPool& arenas_;
    runtime::Span<MemoryBlock> private_memory_;
    const Protection* outer_;
  };

 private:
  std::unique_ptr<runtime::DataLoader> file_;
  runtime::FreeableBuffer program_;
};

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/runtime/platform/runtime.h>

#include <utility>

#include "message.h"
#include "program_loader.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::ProgramLoader;
using internal::refuse;
using internal::write_path;
using runtime::DataLoader;
using runtime::Error;
using runtime::FreeableBuffer;
using runtime::Result;
using runtime::Span;

namespace {

using SharedProgram = std::shared_ptr<const ArenaProgram>;

Result<FreeableBuffer> load_head(const DataLoader& file, size_t size) {
  return file.load(
      0, size, DataLoader::SegmentInfo(DataLoader::SegmentInfo::Type::Program));
}

Span<const uint8_t> bytes_of(const FreeableBuffer& buffer) {
  return {static_cast<const uint8_t*>(buffer.data()), buffer.size()};
}

/// The bytes of the program without its segments.
Result<FreeableBuffer> load_program_bytes(const DataLoader& file,
                                          size_t file_size, Finding* finding) {
  if (file_size < ArenaTable::kHeadBytes) {
    return internal::refuse_structure(finding);
  }
  Result<FreeableBuffer> head = load_head(file, ArenaTable::kHeadBytes);
  if (!head.ok()) {
    return head.error();
  }
  const Result<size_t> size =
      ArenaTable::program_size(bytes_of(*head), file_size, finding);
  if (!size.ok()) {
    return size.error();
  }
  return load_head(file, *size);
}

/// Says that the file is refused, unless the system could not serve it.
Error refuse_program(Error error, Finding* finding) {
  if (error != Error::MemoryAllocationFailed && error != Error::AccessFailed) {
    write_path(finding, "program");
    (void)refuse(finding,
                 "expected a program that ExecuTorch accepts but it found ",
                 runtime::to_string(error));
  }
  return error;
}

template <typename Loader>
Result<std::unique_ptr<DataLoader>> on_heap(Result<Loader> loader) {
  if (!loader.ok()) {
    return loader.error();
  }
  return std::unique_ptr<DataLoader>(new Loader(std::move(*loader)));
}

}  // namespace

ArenaProgram::ArenaProgram(std::unique_ptr<ProgramLoader> loader,
                           Program&& program, const ArenaTable& table)
    : loader_(std::move(loader)), program_(std::move(program)), table_(table) {}

ArenaProgram::~ArenaProgram() = default;

const DataLoader& ArenaProgram::loader() const { return loader_->file(); }

Result<SharedProgram> ArenaProgram::load(std::unique_ptr<DataLoader> file,
                                         Finding* finding,
                                         Program::Verification verification) {
  runtime::runtime_init();
  const Result<size_t> file_size = file->size();
  if (!file_size.ok()) {
    return file_size.error();
  }
  Result<FreeableBuffer> bytes = load_program_bytes(*file, *file_size, finding);
  if (!bytes.ok()) {
    return bytes.error();
  }
  const Result<ArenaTable> table =
      ArenaTable::parse(bytes_of(*bytes), *file_size, finding);
  if (!table.ok()) {
    return table.error();
  }
  auto loader =
      std::make_unique<ProgramLoader>(std::move(file), std::move(*bytes));
  Result<Program> program = Program::load(loader.get(), verification);
  if (!program.ok()) {
    return refuse_program(program.error(), finding);
  }
  return SharedProgram(
      new ArenaProgram(std::move(loader), std::move(*program), *table));
}

Result<SharedProgram> ArenaProgram::load(const char* path, LoadMode mode,
                                         Finding* finding,
                                         Program::Verification verification) {
  Result<std::unique_ptr<DataLoader>> loader =
      mode == LoadMode::Mmap ? on_heap(MmapDataLoader::from(
                                   path, MmapDataLoader::MlockConfig::NoMlock))
                             : on_heap(FileDataLoader::from(path));
  if (!loader.ok()) {
    return loader.error();
  }
  return load(std::move(*loader), finding, verification);
}

Result<SharedProgram> ArenaProgram::load(const void* data, size_t size,
                                         Finding* finding,
                                         Program::Verification verification) {
  return load(std::make_unique<BufferDataLoader>(data, size), finding,
              verification);
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

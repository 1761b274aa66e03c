#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/platform/runtime.h>

#include <utility>

#include "data_files.h"
#include "message.h"
#include "program_loader.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::DataFiles;
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

// Where ExecuTorch 1.5.1 plans the mutable buffers that methods share.
constexpr size_t kSharedMemoryId = 2;

/// Whether a method has planned memory at all; one that returns constants has
/// none.
bool plans_memory(const ArenaTable& table, size_t method) {
  for (size_t i = 0; i < table.num_planned_buffers(method); ++i) {
    if (table.planned_buffer(method, i).size != 0) {
      return true;
    }
  }
  return false;
}

/// Refuses a program whose methods may share memory without saying so.
Error check_unambiguous(const ArenaTable& table, Finding* finding) {
  if (table.num_arenas() != 0) {
    return Error::Ok;
  }
  uint64_t size = 0;
  size_t count = 0;
  for (size_t m = 0; m < table.num_methods(); ++m) {
    if (!plans_memory(table, m)) {
      continue;
    }
    const uint64_t planned =
        table.num_planned_buffers(m) < kSharedMemoryId
            ? 0
            : table.planned_buffer(m, kSharedMemoryId - 1).size;
    if (planned == 0 || (count > 0 && planned != size)) {
      return Error::Ok;
    }
    size = planned;
    ++count;
  }
  if (count < 2) {
    return Error::Ok;
  }
  write_path(finding, "is_unshared");
  (void)refuse(finding,
               "expected to be told whether the methods share memory, since "
               "all of them plan ",
               size, " bytes of memory id 2 and the program has no arenas");
  return Error::InvalidArgument;
}

}  // namespace

ArenaProgram::ArenaProgram(std::unique_ptr<ProgramLoader> loader,
                           std::unique_ptr<DataFiles> data_files,
                           Program&& program, const ArenaTable& table)
    : loader_(std::move(loader)),
      data_files_(std::move(data_files)),
      program_(std::move(program)),
      table_(table) {}

ArenaProgram::~ArenaProgram() = default;

const DataLoader& ArenaProgram::loader() const { return loader_->file(); }

const ArenaProgram::NamedDataMap* ArenaProgram::data() const {
  return data_files_.get();
}

Result<SharedProgram> ArenaProgram::load(std::unique_ptr<DataLoader> file,
                                         Finding* finding,
                                         const LoadOptions& options) {
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
  if (!options.is_unshared) {
    ET_CHECK_OK_OR_RETURN_ERROR(check_unambiguous(*table, finding));
  }
  Result<std::unique_ptr<DataFiles>> data_files =
      DataFiles::load(options.data_files, options.mode, finding);
  if (!data_files.ok()) {
    return data_files.error();
  }
  auto loader =
      std::make_unique<ProgramLoader>(std::move(file), std::move(*bytes));
  Result<Program> program = Program::load(loader.get(), options.verification);
  if (!program.ok()) {
    return refuse_program(program.error(), finding);
  }
  return SharedProgram(new ArenaProgram(
      std::move(loader), std::move(*data_files), std::move(*program), *table));
}

Result<SharedProgram> ArenaProgram::load(const char* path, Finding* finding,
                                         const LoadOptions& options) {
  Result<std::unique_ptr<DataLoader>> loader =
      internal::open_file(path, options.mode);
  if (!loader.ok()) {
    write_path(finding, "file");
    (void)refuse(finding, "expected a file that can be read but found ",
                 runtime::to_string(loader.error()));
    return loader.error();
  }
  return load(std::move(*loader), finding, options);
}

Result<SharedProgram> ArenaProgram::load(const void* data, size_t size,
                                         Finding* finding,
                                         const LoadOptions& options) {
  return load(std::make_unique<BufferDataLoader>(data, size), finding, options);
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

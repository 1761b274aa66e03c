#include "program_loader.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

using runtime::Error;
using runtime::FreeableBuffer;
using runtime::Result;
using runtime::Span;

namespace {

thread_local const ProgramLoader::Protection* protection = nullptr;

}  // namespace

Result<FreeableBuffer> ProgramLoader::load(size_t offset, size_t size,
                                           const SegmentInfo& info) const {
  if (offset <= program_.size() && size <= program_.size() - offset) {
    return FreeableBuffer(static_cast<const uint8_t*>(program_.data()) + offset,
                          size, /*free_fn=*/nullptr);
  }
  return file_->load(offset, size, info);
}

Error ProgramLoader::load_into(size_t offset, size_t size,
                               const SegmentInfo& info, void* buffer) const {
  if (protection != nullptr) {
    if (protection->arenas_.contains(buffer)) {
      return Error::Ok;
    }
    for (MemoryBlock& block : protection->private_memory_) {
      if (block.contains(buffer)) {
        const auto* const to = static_cast<const uint8_t*>(buffer);
        return block.load(static_cast<size_t>(to - block.span().data()), size,
                          *file_, offset, info);
      }
    }
  }
  return file_->load_into(offset, size, info, buffer);
}

ProgramLoader::Protection::Protection(const ArenaPool& arenas,
                                      Span<MemoryBlock> private_memory)
    : arenas_(arenas), private_memory_(private_memory), outer_(protection) {
  protection = this;
}

ProgramLoader::Protection::~Protection() { protection = outer_; }

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

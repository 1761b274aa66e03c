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
  const Protection* const protection = Protection::current();
  if (protection != nullptr && protection->covers(buffer)) {
    return Error::Ok;
  }
  MemoryBlock* const block =
      protection == nullptr ? nullptr : protection->private_block(buffer);
  return block == nullptr ? file_->load_into(offset, size, info, buffer)
                          : block->load(block->offset_of(buffer), size, *file_,
                                        offset, info);
}

const ProgramLoader::Protection* ProgramLoader::Protection::current() {
  return protection;
}

MemoryBlock* ProgramLoader::Protection::private_block(
    const void* address) const {
  for (MemoryBlock& block : private_memory_) {
    if (block.contains(address)) {
      return &block;
    }
  }
  return nullptr;
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

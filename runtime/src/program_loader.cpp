#include "program_loader.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

using runtime::Error;
using runtime::FreeableBuffer;
using runtime::Result;

namespace {

thread_local const ArenaPool* protected_pool = nullptr;

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
  return Protection::covers(buffer)
             ? Error::Ok
             : file_->load_into(offset, size, info, buffer);
}

bool ProgramLoader::Protection::covers(const void* address) {
  return protected_pool != nullptr && protected_pool->contains(address);
}

ProgramLoader::Protection::Protection(const ArenaPool& pool)
    : outer_(protected_pool) {
  protected_pool = &pool;
}

ProgramLoader::Protection::~Protection() { protected_pool = outer_; }

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

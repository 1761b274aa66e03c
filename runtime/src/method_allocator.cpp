#include <executorch/extension/arenas/method_allocator.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

void* MethodAllocator::allocate(size_t size, size_t alignment) {
  if (!isPowerOf2(alignment) || alignment > SIZE_MAX - sizeof(Block) ||
      size > SIZE_MAX - sizeof(Block) - alignment) {
    return nullptr;
  }
  void* const memory = std::malloc(sizeof(Block) + alignment + size);
  if (memory == nullptr) {
    return nullptr;
  }
  blocks_ = new (memory) Block{blocks_};
  return alignPointer(blocks_ + 1, alignment);
}

void MethodAllocator::reset() {
  while (blocks_ != nullptr) {
    Block* const next = blocks_->next;
    std::free(blocks_);
    blocks_ = next;
  }
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

#pragma once

#include <executorch/extension/arenas/namespace.h>
#include <executorch/runtime/core/memory_allocator.h>

#include <cstddef>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

/**
 * What a method's own structures live in: blocks of malloc that end together.
 *
 * Unlike `MallocMemoryAllocator` it lists the blocks in the blocks themselves.
 * So an allocation is one, and can only fail as a whole.
 */
class ET_ARENAS_API MethodAllocator final : public runtime::MemoryAllocator {
 public:
  MethodAllocator() : MemoryAllocator(/*size=*/0, /*base_address=*/nullptr) {}
  MethodAllocator(const MethodAllocator&) = delete;
  MethodAllocator& operator=(const MethodAllocator&) = delete;
  ~MethodAllocator() override { reset(); }

  /// @returns Null if there is no such block or `alignment` is no power of two.
  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override;

  /// Frees every block.
  void reset() override;

 private:
  struct Block {
    Block* next;
  };

  Block* blocks_ = nullptr;
};

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

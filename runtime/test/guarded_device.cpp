#include "guarded_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace pte_arenas {
namespace test {

using executorch::runtime::Error;
using executorch::runtime::Result;

namespace {

size_t up_to_pages(size_t size) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

}  // namespace

GuardedDevice& GuardedDevice::get() {
  static GuardedDevice* const device = [] {
    static GuardedDevice allocator;
    executorch::runtime::register_device_allocator(&allocator);
    return &allocator;
  }();
  return *device;
}

size_t GuardedDevice::num_blocks() const {
  return static_cast<size_t>(std::count_if(
      blocks_.begin(), blocks_.end(),
      [](const Block& block) { return block.address != nullptr; }));
}

GuardedDevice::Block* GuardedDevice::find(const void* address, Index index) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (Block& block : blocks_) {
    const auto begin = reinterpret_cast<uintptr_t>(block.address);
    if (begin != 0 && block.index == index && at >= begin &&
        at - begin < block.size) {
      return &block;
    }
  }
  return nullptr;
}

Result<void*> GuardedDevice::allocate(size_t nbytes, Index index,
                                      size_t alignment) {
  const auto block = std::find_if(
      blocks_.begin(), blocks_.end(),
      [](const Block& candidate) { return candidate.address == nullptr; });
  if (fails() || block == blocks_.end() || alignment > up_to_pages(1)) {
    return Error::MemoryAllocationFailed;
  }
  const size_t mapped_size = up_to_pages(nbytes);
  void* const pages = mmap(nullptr, mapped_size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    return Error::MemoryAllocationFailed;
  }
  // No device promises zeros.
  std::memset(pages, 0xa5, std::min(mapped_size, size_t{1} << 16));
  mprotect(pages, mapped_size, PROT_NONE);
  *block = {static_cast<uint8_t*>(pages), mapped_size, nbytes, index};
  return pages;
}

void GuardedDevice::deallocate(void* ptr, Index index) {
  Block* const block = find(ptr, index);
  if (block == nullptr || block->address != ptr) {
    std::abort();
  }
  munmap(ptr, block->mapped_size);
  *block = Block();
}

Error GuardedDevice::copy_host_to_device(void* dst, const void* src,
                                         size_t nbytes, Index index) {
  largest_copy = std::max(largest_copy, nbytes);
  return copy(dst, src, dst, nbytes, index);
}

Error GuardedDevice::copy_device_to_host(void* dst, const void* src,
                                         size_t nbytes, Index index) {
  return copy(dst, src, src, nbytes, index);
}

Error GuardedDevice::copy(void* dst, const void* src, const void* on_device,
                          size_t nbytes, Index index) {
  if (fails()) {
    return Error::AccessFailed;
  }
  const Block* const block = find(on_device, index);
  if (block == nullptr ||
      nbytes > static_cast<size_t>(block->address + block->size -
                                   static_cast<const uint8_t*>(on_device))) {
    return Error::InvalidArgument;
  }
  mprotect(block->address, block->mapped_size, PROT_READ | PROT_WRITE);
  std::memcpy(dst, src, nbytes);
  mprotect(block->address, block->mapped_size, PROT_NONE);
  return Error::Ok;
}

}  // namespace test
}  // namespace pte_arenas

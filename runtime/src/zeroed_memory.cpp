#include <executorch/extension/arenas/zeroed_memory.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#define ET_ARENAS_HAS_MMAP 1
#endif

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using runtime::Error;
using runtime::Result;

namespace {

// Below this a mapping costs more than the zeros that it saves.
constexpr size_t kSmallestMapping = size_t{1} << 16;

uint8_t* align_up(void* address, size_t alignment) {
  const uintptr_t value = reinterpret_cast<uintptr_t>(address);
  return static_cast<uint8_t*>(address) + (-value & (alignment - 1));
}

#ifdef ET_ARENAS_HAS_MMAP
size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

void* map_zero_pages(size_t size) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  void* address =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, /*fd=*/-1, 0);
  return address == MAP_FAILED ? nullptr : address;
}
#endif

}  // namespace

Result<ZeroedMemory> ZeroedMemory::allocate(size_t size, size_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 ||
      alignment > SIZE_MAX - kReadableBehind ||
      size > SIZE_MAX - kReadableBehind - alignment) {
    return Error::InvalidArgument;
  }
  const size_t readable_size = size + kReadableBehind;
#ifdef ET_ARENAS_HAS_MMAP
  if (size >= kSmallestMapping) {
    // Mappings begin at a page; only a larger alignment needs more room.
    const size_t mapped_size =
        alignment > page_size() ? readable_size + alignment : readable_size;
    void* base = map_zero_pages(mapped_size);
    if (base == nullptr) {
      return Error::MemoryAllocationFailed;
    }
    return ZeroedMemory(align_up(base, alignment), size, base, mapped_size);
  }
#endif
  void* base = std::calloc(1, readable_size + alignment);
  if (base == nullptr) {
    return Error::MemoryAllocationFailed;
  }
  return ZeroedMemory(align_up(base, alignment), size, base, 0);
}

ZeroedMemory::ZeroedMemory(ZeroedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      base_(std::exchange(other.base_, nullptr)),
      mapped_size_(std::exchange(other.mapped_size_, 0)) {}

ZeroedMemory& ZeroedMemory::operator=(ZeroedMemory&& other) noexcept {
  if (this != &other) {
    free();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    base_ = std::exchange(other.base_, nullptr);
    mapped_size_ = std::exchange(other.mapped_size_, 0);
  }
  return *this;
}

ZeroedMemory::~ZeroedMemory() { free(); }

void ZeroedMemory::free() {
#ifdef ET_ARENAS_HAS_MMAP
  if (mapped_size_ != 0) {
    munmap(base_, mapped_size_);
    return;
  }
#endif
  std::free(base_);
}

void ZeroedMemory::zero(size_t offset, size_t size) {
  uint8_t* begin = data_ + offset;
  uint8_t* const end = begin + size;
#ifdef __linux__
  // Only Linux promises that such pages read as zeros afterwards.
  if (mapped_size_ != 0 && size >= kSmallestMapping) {
    uint8_t* const first_page = align_up(begin, page_size());
    const size_t pages = static_cast<size_t>(end - first_page) & -page_size();
    if (madvise(first_page, pages, MADV_DONTNEED) == 0) {
      std::memset(begin, 0, static_cast<size_t>(first_page - begin));
      begin = first_page + pages;
    }
  }
#endif
  if (begin != end) {
    std::memset(begin, 0, static_cast<size_t>(end - begin));
  }
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

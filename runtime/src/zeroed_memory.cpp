#include <executorch/extension/arenas/zeroed_memory.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "frozen_pages.h"
#include "touched_pages.h"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#define ET_ARENAS_HAS_MMAP 1
#endif

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::ByteRange;
using internal::ByteRanges;
using internal::FrozenPages;
using runtime::Error;
using runtime::Result;
using runtime::Span;

namespace {

// Below this a mapping costs more than the zeros that it saves.
constexpr size_t kSmallestMapping = size_t{1} << 16;

uint8_t* align_up(void* address, size_t alignment) {
  const uintptr_t value = reinterpret_cast<uintptr_t>(address);
  return static_cast<uint8_t*>(address) + (-value & (alignment - 1));
}

/// With huge pages the first byte that is written of a block would make 2 MiB
/// resident: they are asked for only where all of it is written.
void advise_huge_pages(void* address, size_t size, bool wanted) {
#ifdef MADV_HUGEPAGE
  if (size > 0) {
    (void)madvise(address, size, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
#else
  (void)address, (void)size, (void)wanted;
#endif
}

#ifdef ET_ARENAS_HAS_MMAP
size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

/// Maps zeros, at an address in place of what is there or at any.
void* map_zero_pages(size_t size, void* address = nullptr) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (address != nullptr) {
    flags |= MAP_FIXED;
  }
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  void* mapped =
      mmap(address, size, PROT_READ | PROT_WRITE, flags, /*fd=*/-1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  advise_huge_pages(mapped, size, false);
  return mapped;
}
#endif

/// Outside of them a block is zeros.
ByteRanges touched_pages(Span<uint8_t> block, bool is_mapped,
                         const FrozenPages* frozen) {
  std::optional<ByteRanges> written;
  if (is_mapped) {
    written = internal::written_pages(block.data(), block.size());
  }
  if (!written.has_value()) {
    return {{0, block.size()}};
  }
  return frozen == nullptr ? std::move(*written)
                           : internal::united(*written, frozen->ranges());
}

/// Copies to a range that nobody has touched, in few page faults.
void fill(uint8_t* to, const uint8_t* from, size_t size) {
  // What a huge page is on x86-64 and, with pages of 4 KiB, on ARM64.
  constexpr size_t kHugePage = size_t{2} << 20;
  uint8_t* const begin = align_up(to, kHugePage);
  const bool is_huge = size >= 2 * kHugePage;
  const size_t pages =
      is_huge ? static_cast<size_t>(to + size - begin) & -kHugePage : 0;
  advise_huge_pages(begin, pages, true);
  std::memcpy(to, from, size);
  advise_huge_pages(begin, pages, false);
}

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
      mapped_size_(std::exchange(other.mapped_size_, 0)),
      frozen_(std::move(other.frozen_)) {}

ZeroedMemory& ZeroedMemory::operator=(ZeroedMemory&& other) noexcept {
  if (this != &other) {
    free();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    base_ = std::exchange(other.base_, nullptr);
    mapped_size_ = std::exchange(other.mapped_size_, 0);
    frozen_ = std::move(other.frozen_);
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
  if (frozen_ != nullptr) {
    zero_frozen(offset, size);
    return;
  }
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

void ZeroedMemory::zero_frozen(size_t offset, size_t size) {
#ifdef ET_ARENAS_HAS_MMAP
  if (size == size_ &&
      map_zero_pages(size_ + kReadableBehind, data_) != nullptr) {
    frozen_ = nullptr;
    return;
  }
#endif
  // Pages dropped here would show the frozen bytes again.
  for (const ByteRange& range : touched_pages(span(), true, frozen_.get())) {
    const size_t begin = std::max(range.offset, offset);
    const size_t end = std::min(range.offset + range.size, offset + size);
    if (begin < end) {
      std::memset(data_ + begin, 0, end - begin);
    }
  }
}

void ZeroedMemory::assign(const ZeroedMemory& other) {
  const ByteRanges from =
      touched_pages(other.span(), other.mapped_size_ != 0, other.frozen_.get());
  const ByteRanges to = touched_pages(span(), mapped_size_ != 0, frozen_.get());
  for (const ByteRange& range : internal::without(to, from)) {
    zero(range.offset, range.size);
  }
  for (const ByteRange& range : from) {
    uint8_t* const begin = data_ + range.offset;
    if (to.empty()) {
      fill(begin, other.data_ + range.offset, range.size);
    } else {
      std::memcpy(begin, other.data_ + range.offset, range.size);
    }
  }
}

bool ZeroedMemory::freeze() {
  const std::optional<ByteRanges> written =
      internal::written_pages(data_, size_);
  if (!written.has_value()) {
    return false;
  }
  // Whoever shares the frozen bytes copies what was written since: when that is
  // much of it, it is worth freezing again.
  if (frozen_ != nullptr && internal::bytes_in(*written) <=
                                internal::bytes_in(frozen_->ranges()) / 2) {
    return true;
  }
  ByteRanges ranges = frozen_ == nullptr
                          ? *written
                          : internal::united(*written, frozen_->ranges());
  auto frozen =
      FrozenPages::freeze(data_, size_ + kReadableBehind, std::move(ranges));
  if (frozen == nullptr || !frozen->map_at(data_)) {
    return false;
  }
  frozen_ = std::move(frozen);
  return true;
}

void ZeroedMemory::share_with(ZeroedMemory* other) {
  const bool can_share = mapped_size_ != 0 && other->mapped_size_ != 0;
  if (!can_share || !freeze() || !frozen_->map_at(other->data_)) {
    other->assign(*this);
    return;
  }
  other->frozen_ = frozen_;
  const ByteRanges written =
      internal::written_pages(data_, size_).value_or(ByteRanges{{0, size_}});
  for (const ByteRange& range : written) {
    std::memcpy(other->data_ + range.offset, data_ + range.offset, range.size);
  }
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

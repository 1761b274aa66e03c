#include "touched_pages.h"

#include <algorithm>
#include <cstring>

#ifdef __linux__
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#endif

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

namespace {

/// Adds a range that begins at or behind the last one's beginning.
void append(ByteRanges* ranges, ByteRange range) {
  if (!ranges->empty()) {
    ByteRange& last = ranges->back();
    const size_t end = last.offset + last.size;
    if (range.offset <= end) {
      last.size = std::max(end, range.offset + range.size) - last.offset;
      return;
    }
  }
  ranges->push_back(range);
}

}  // namespace

size_t bytes_in(const ByteRanges& ranges) {
  size_t bytes = 0;
  for (const ByteRange& range : ranges) {
    bytes += range.size;
  }
  return bytes;
}

ByteRanges united(const ByteRanges& a, const ByteRanges& b) {
  ByteRanges all(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), all.begin(),
             [](const ByteRange& left, const ByteRange& right) {
               return left.offset < right.offset;
             });
  ByteRanges ranges;
  for (const ByteRange& range : all) {
    append(&ranges, range);
  }
  return ranges;
}

ByteRanges without(const ByteRanges& a, const ByteRanges& b) {
  ByteRanges ranges;
  auto cut = b.begin();
  for (const ByteRange& range : a) {
    size_t begin = range.offset;
    const size_t end = range.offset + range.size;
    while (cut != b.end() && cut->offset + cut->size <= begin) {
      ++cut;
    }
    for (auto c = cut; begin < end; ++c) {
      const size_t stop = c == b.end() ? end : std::min(end, c->offset);
      if (stop > begin) {
        ranges.push_back({begin, stop - begin});
      }
      begin = c == b.end() ? end : c->offset + c->size;
    }
  }
  return ranges;
}

#ifdef __linux__

namespace {

// include/uapi/linux/fs.h of Linux 6.7, which older headers lack.
struct PageRegion {
  uint64_t start;
  uint64_t end;
  uint64_t categories;
};

struct PagemapScan {
  uint64_t size;
  uint64_t flags;
  uint64_t start;
  uint64_t end;
  uint64_t walk_end;
  uint64_t regions;
  uint64_t num_regions;
  uint64_t max_pages;
  uint64_t category_inverted;
  uint64_t category_mask;
  uint64_t category_anyof_mask;
  uint64_t return_mask;
};

constexpr unsigned long kPagemapScan = _IOWR('f', 16, PagemapScan);
constexpr uint64_t kPageIsFile = 1 << 2;
constexpr uint64_t kPageIsPresent = 1 << 3;
constexpr uint64_t kPageIsSwapped = 1 << 4;
constexpr uint64_t kPageIsZero = 1 << 5;

// Documentation/admin-guide/mm/pagemap.rst
constexpr uint64_t kEntryPresent = uint64_t{1} << 63;
constexpr uint64_t kEntrySwapped = uint64_t{1} << 62;
constexpr uint64_t kEntryFile = uint64_t{1} << 61;
constexpr uint64_t kEntryExclusive = uint64_t{1} << 56;

class Pagemap final {
 public:
  Pagemap() : fd_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}
  Pagemap(const Pagemap&) = delete;
  Pagemap& operator=(const Pagemap&) = delete;
  ~Pagemap() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Whether a page that this process shares holds something. The system's page
/// of zeros looks like one that a child of fork() has not written yet.
bool holds_something(const uint8_t* page, size_t size) {
  return page[0] != 0 || std::memcmp(page, page + 1, size - 1) != 0;
}

bool is_written(uint64_t entry, const uint8_t* page, size_t size) {
  if ((entry & kEntryFile) != 0) {
    return false;
  }
  return (entry & kEntrySwapped) != 0 ||
         ((entry & kEntryPresent) != 0 &&
          ((entry & kEntryExclusive) != 0 || holds_something(page, size)));
}

}  // namespace

std::optional<ByteRanges> written_pages_by_scan(const uint8_t* begin,
                                                size_t size) {
  const Pagemap pagemap;
  const auto first = reinterpret_cast<uintptr_t>(begin);
  std::vector<PageRegion> regions(1024);
  ByteRanges ranges;
  PagemapScan scan{};
  scan.size = sizeof(scan);
  scan.end = first + size;
  scan.regions = reinterpret_cast<uintptr_t>(regions.data());
  scan.num_regions = regions.size();
  scan.category_inverted = kPageIsFile | kPageIsZero;
  scan.category_mask = kPageIsFile | kPageIsZero;
  scan.category_anyof_mask = kPageIsPresent | kPageIsSwapped;
  for (scan.walk_end = first; scan.walk_end < scan.end;) {
    scan.start = scan.walk_end;
    const int found = ioctl(pagemap.fd(), kPagemapScan, &scan);
    if (found < 0) {
      return std::nullopt;
    }
    for (int i = 0; i < found; ++i) {
      const size_t offset = regions[i].start - first;
      const size_t end = std::min<size_t>(regions[i].end - first, size);
      append(&ranges, {offset, end - offset});
    }
  }
  return ranges;
}

std::optional<ByteRanges> written_pages_by_entry(const uint8_t* begin,
                                                 size_t size) {
  const Pagemap pagemap;
  const auto page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = reinterpret_cast<uintptr_t>(begin) / page_size;
  const size_t num_pages = size / page_size + (size % page_size != 0);
  std::vector<uint64_t> entries(8192);
  ByteRanges ranges;
  for (size_t page = 0; page < num_pages;) {
    const size_t wanted = std::min(entries.size(), num_pages - page);
    const ssize_t found =
        pread(pagemap.fd(), entries.data(), wanted * sizeof(uint64_t),
              static_cast<off_t>((first + page) * sizeof(uint64_t)));
    if (found < static_cast<ssize_t>(sizeof(uint64_t))) {
      return std::nullopt;
    }
    const size_t count = static_cast<size_t>(found) / sizeof(uint64_t);
    for (size_t i = 0; i < count; ++i, ++page) {
      const size_t offset = page * page_size;
      const size_t inside = std::min(page_size, size - offset);
      if (is_written(entries[i], begin + offset, inside)) {
        append(&ranges, {offset, inside});
      }
    }
  }
  return ranges;
}

std::optional<ByteRanges> written_pages(const uint8_t* begin, size_t size) {
  std::optional<ByteRanges> ranges = written_pages_by_scan(begin, size);
  return ranges.has_value() ? ranges : written_pages_by_entry(begin, size);
}

#else

std::optional<ByteRanges> written_pages(const uint8_t*, size_t) {
  return std::nullopt;
}

#endif

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

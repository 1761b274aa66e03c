#include "frozen_pages.h"

#include <cerrno>
#include <utility>

#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

FrozenPages::FrozenPages(int fd, size_t size, ByteRanges ranges)
    : fd_(fd), size_(size), ranges_(std::move(ranges)) {}

#ifdef MFD_ALLOW_SEALING

namespace {

bool write_all(int fd, const uint8_t* data, size_t size, size_t offset) {
  while (size > 0) {
    const ssize_t written = pwrite(fd, data, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    data += written;
    offset += static_cast<size_t>(written);
    size -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

std::shared_ptr<const FrozenPages> FrozenPages::freeze(const uint8_t* block,
                                                       size_t size,
                                                       ByteRanges ranges) {
  const int fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    return nullptr;
  }
  const std::shared_ptr<const FrozenPages> frozen(
      new FrozenPages(fd, size, std::move(ranges)));
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) {
    return nullptr;
  }
  for (const ByteRange& range : frozen->ranges_) {
    if (!write_all(fd, block + range.offset, range.size, range.offset)) {
      return nullptr;
    }
  }
  constexpr int kSeals =
      F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  return fcntl(fd, F_ADD_SEALS, kSeals) == 0 ? frozen : nullptr;
}

FrozenPages::~FrozenPages() { close(fd_); }

bool FrozenPages::map_at(uint8_t* address) const {
  // Private, so that children of fork() have bytes of their own as well.
  return mmap(address, size_, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_,
              /*offset=*/0) != MAP_FAILED;
}

#else

std::shared_ptr<const FrozenPages> FrozenPages::freeze(const uint8_t*, size_t,
                                                       ByteRanges) {
  return nullptr;
}

FrozenPages::~FrozenPages() = default;

bool FrozenPages::map_at(uint8_t*) const { return false; }

#endif

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

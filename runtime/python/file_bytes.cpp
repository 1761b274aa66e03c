#include "file_bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace pte_arenas {

namespace {

// Large enough that calls cost nothing beside the copy, small enough that the
// disk works while the next one is copied.
constexpr size_t kStep = size_t{8} << 20;

}  // namespace

int reserve(int file, uint64_t size) {
#ifdef __linux__
  while (fallocate(file, 0, 0, static_cast<off_t>(size)) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
      return 0;
    }
    if (errno != EINTR) {
      return errno;
    }
  }
#else
  (void)file, (void)size;
#endif
  return 0;
}

int write_at(int file, uint64_t offset, const uint8_t* data, size_t size) {
  while (size > 0) {
    const ssize_t written =
        pwrite(file, data, std::min(size, kStep), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno;
    }
#ifdef SYNC_FILE_RANGE_WRITE
    (void)sync_file_range(file, static_cast<off_t>(offset), written,
                          SYNC_FILE_RANGE_WRITE);
#endif
    data += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
  return 0;
}

int read_at(int file, uint64_t offset, uint8_t* data, size_t size,
            size_t* done) {
  for (*done = 0; *done < size;) {
    const ssize_t found = pread(file, data + *done, size - *done,
                                static_cast<off_t>(offset + *done));
    if (found < 0 && errno == EINTR) {
      continue;
    }
    if (found < 0) {
      return errno;
    }
    if (found == 0) {
      return 0;
    }
    *done += static_cast<size_t>(found);
  }
  return 0;
}

}  // namespace pte_arenas

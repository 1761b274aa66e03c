#include "program_header.h"

#include <cstring>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

// The `eh00` header, behind the FlatBuffer's root offset and identifier:
// magic, then length (32 bits), program size, segment base and, in newer
// files, the size of all segments (64 bits each), little-endian.
constexpr size_t kHeadBytes = 64;
constexpr size_t kMagicOffset = 8;
constexpr char kMagic[] = {'e', 'h', '0', '0'};
constexpr uint32_t kHeaderLength = 24;
constexpr uint32_t kHeaderLengthWithSegmentSize = 32;

uint64_t little_endian(const uint8_t* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i > 0; --i) {
    value = value << 8 | bytes[i - 1];
  }
  return value;
}

}  // namespace

bool read_header(runtime::Span<const uint8_t> head, uint64_t file_size,
                 ProgramHeader* header) {
  if (head.size() < kHeadBytes || file_size < kHeadBytes) {
    return false;
  }
  const uint8_t* bytes = head.data() + kMagicOffset;
  if (std::memcmp(bytes, kMagic, sizeof(kMagic)) != 0) {
    *header = {file_size, 0};
    return true;
  }
  const uint64_t length = little_endian(bytes + 4, 4);
  header->program_size = little_endian(bytes + 8, 8);
  header->segment_base = little_endian(bytes + 16, 8);
  const uint64_t segments_size =
      length >= kHeaderLengthWithSegmentSize ? little_endian(bytes + 24, 8) : 0;
  if (length < kHeaderLength || header->program_size < kHeadBytes ||
      header->program_size > file_size) {
    return false;
  }
  if (header->segment_base == 0) {
    return segments_size == 0;
  }
  return header->segment_base >= header->program_size &&
         header->segment_base <= file_size &&
         segments_size <= file_size - header->segment_base;
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

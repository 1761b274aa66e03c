#pragma once

#include <executorch/extension/arenas/namespace.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

/**
 * Remembers names in 4 KiB of stack: a Bloom filter.
 *
 * A name that it takes for new is new. One that it takes for seen may be new as
 * well, so the caller then looks among the earlier names: about once for 1,000
 * different names and 800 times for 10,000.
 */
class NameFilter final {
 public:
  /// Whether the name may have been given before; remembers it.
  bool maybe_seen(std::string_view name) {
    const uint64_t hash = hash_of(name);
    const bool first = mark(hash & kMask);
    const bool second = mark(hash >> 32 & kMask);
    return first && second;
  }

 private:
  static constexpr size_t kBits = 1U << 15;
  static constexpr uint64_t kMask = kBits - 1;

  /// 64-bit FNV-1a, with its high bits folded into those that are used.
  static uint64_t hash_of(std::string_view name) {
    uint64_t hash = 0xcbf29ce484222325U;
    for (const char letter : name) {
      hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3U;
    }
    return hash ^ hash >> 16;
  }

  bool mark(uint64_t bit) {
    uint64_t& word = words_[bit / 64];
    const uint64_t flag = uint64_t{1} << bit % 64;
    const bool was_marked = (word & flag) != 0;
    word |= flag;
    return was_marked;
  }

  uint64_t words_[kBits / 64] = {};
};

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

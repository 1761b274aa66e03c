#include <executorch/extension/arenas/arena_pool.h>

#include <functional>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using runtime::Error;
using runtime::Result;

Result<ArenaPool> ArenaPool::allocate(const ArenaTable& table) {
  ArenaPool pool;
  for (size_t a = 0; a < table.num_arenas(); ++a) {
    const ArenaInfo arena = table.arena(a);
    if (!arena.device.is_cpu()) {
      return Error::NotSupported;
    }
    Result<ZeroedMemory> memory =
        ZeroedMemory::allocate(arena.size, arena.alignment);
    if (!memory.ok()) {
      return memory.error();
    }
    pool.memory_.push_back(std::move(*memory));
    pool.spans_.push_back(pool.memory_.back().span());
  }
  return pool;
}

bool ArenaPool::contains(const void* address) const {
  const auto* byte = static_cast<const uint8_t*>(address);
  const std::less_equal<const uint8_t*> at_or_before;
  for (const runtime::Span<uint8_t>& span : spans_) {
    if (at_or_before(span.begin(), byte) && !at_or_before(span.end(), byte)) {
      return true;
    }
  }
  return false;
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

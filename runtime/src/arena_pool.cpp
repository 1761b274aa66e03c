#include <executorch/extension/arenas/arena_pool.h>

#include <functional>

#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using internal::DeviceName;
using internal::Name;
using internal::refuse;
using internal::write_path;
using runtime::Error;
using runtime::Result;

Result<ArenaPool> ArenaPool::allocate(const ArenaTable& table,
                                      Finding* finding) {
  ArenaPool pool;
  for (size_t a = 0; a < table.num_arenas(); ++a) {
    const ArenaInfo arena = table.arena(a);
    if (!arena.device.is_cpu()) {
      write_path(finding, "arenas[", uint64_t{a}, "].device_type");
      (void)refuse(finding, "expected an arena on cpu but found ",
                   DeviceName{static_cast<int>(arena.device.type()),
                              static_cast<int>(arena.device.index())});
      return Error::NotSupported;
    }
    Result<ZeroedMemory> memory =
        ZeroedMemory::allocate(arena.size, arena.alignment);
    if (!memory.ok()) {
      write_path(finding, "arenas[", uint64_t{a}, "].size");
      (void)refuse(finding, "expected memory for ", uint64_t{arena.size},
                   " bytes of arena ", Name{arena.name}, " but found none");
      return Error::MemoryAllocationFailed;
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

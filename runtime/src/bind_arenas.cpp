#include <executorch/extension/arenas/bind_arenas.h>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using runtime::Error;
using runtime::Span;

namespace {

bool is_large_and_aligned(Span<uint8_t> memory, const ArenaInfo& arena) {
  return memory.size() >= arena.size &&
         (arena.size == 0 ||
          reinterpret_cast<uintptr_t>(memory.data()) % arena.alignment == 0);
}

}  // namespace

Error bind_arenas(const ArenaTable& table, std::string_view method,
                  Span<Span<uint8_t>> planned,
                  Span<const Span<uint8_t>> arenas) {
  const runtime::Result<size_t> index = table.find_method(method);
  if (!index.ok()) {
    return index.error();
  }
  if (planned.size() != table.num_planned_buffers(*index) ||
      arenas.size() != table.num_arenas()) {
    return Error::InvalidArgument;
  }
  for (size_t a = 0; a < arenas.size(); ++a) {
    if (!is_large_and_aligned(arenas[a], table.arena(a))) {
      return Error::InvalidArgument;
    }
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    const PlannedBuffer buffer = table.planned_buffer(*index, i);
    if (buffer.arena.has_value()) {
      // Not a byte more than declared, whatever the caller's span holds.
      planned[i] = Span<uint8_t>(arenas[*buffer.arena].data(),
                                 table.arena(*buffer.arena).size);
    } else if (planned[i].size() < buffer.size) {
      return Error::InvalidArgument;
    }
  }
  return Error::Ok;
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

#include <executorch/extension/arenas/snapshot.h>

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {

using runtime::Error;
using runtime::Result;
using runtime::Span;

Result<Snapshot> Snapshot::create(std::shared_ptr<const ArenaProgram> program) {
  const ArenaTable& table = program->table();
  std::vector<ZeroedMemory> memory;
  memory.reserve(table.num_arenas());
  for (size_t a = 0; a < table.num_arenas(); ++a) {
    const ArenaInfo arena = table.arena(a);
    const bool is_state = arena.lifetime == Lifetime::State;
    Result<ZeroedMemory> block =
        ZeroedMemory::allocate(is_state ? arena.size : 0, arena.alignment);
    if (!block.ok()) {
      return Error::MemoryAllocationFailed;
    }
    memory.push_back(std::move(*block));
  }
  return Snapshot(std::move(program), std::move(memory));
}

Result<Span<uint8_t>> Snapshot::arena(std::string_view name) const {
  if (program_ == nullptr) {
    return Error::NotFound;
  }
  const Result<size_t> a = program_->table().find_arena(name);
  if (!a.ok()) {
    return a.error();
  }
  if (program_->table().arena(*a).lifetime != Lifetime::State) {
    return Error::NotFound;
  }
  return memory_[*a].span();
}

Result<Span<uint8_t>> Snapshot::slot(std::string_view arena_name,
                                     std::string_view name) const {
  const Result<Span<uint8_t>> bytes = arena(arena_name);
  if (!bytes.ok()) {
    return bytes.error();
  }
  const ArenaTable& table = program_->table();
  const Result<size_t> a = table.find_arena(arena_name);
  const Result<size_t> s = table.find_slot(*a, name);
  if (!s.ok()) {
    return s.error();
  }
  const SlotInfo info = table.slot(*a, *s);
  return Span<uint8_t>(bytes->data() + info.offset, info.nbytes);
}

}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

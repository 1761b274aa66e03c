#include "initial_values.h"

#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

using runtime::DataLoader;
using runtime::Error;

Error InitialValues::write(ArenaPool* pool, Finding* finding) const {
  Error error = Error::Ok;
  for (size_t a = 0; error == Error::Ok && a < table_.num_arenas(); ++a) {
    if (!pool->is_kept(a)) {
      error = write_arena(&pool->block(a), a, finding);
    }
  }
  return error;
}

Error InitialValues::reset(ArenaPool* pool, size_t arena) const {
  MemoryBlock& memory = pool->block(arena);
  ET_CHECK_OK_OR_RETURN_ERROR(memory.zero(0, table_.arena(arena).size));
  return write_arena(&memory, arena, /*finding=*/nullptr);
}

Error InitialValues::reset(ArenaPool* pool, size_t arena, size_t slot) const {
  const SlotInfo info = table_.slot(arena, slot);
  MemoryBlock& memory = pool->block(arena);
  ET_CHECK_OK_OR_RETURN_ERROR(memory.zero(info.offset, info.nbytes));
  return write_slot(&memory, arena, slot, /*finding=*/nullptr);
}

Error InitialValues::write_arena(MemoryBlock* memory, size_t arena,
                                 Finding* finding) const {
  const size_t num_slots = table_.arena(arena).num_slots;
  Error error = Error::Ok;
  for (size_t s = 0; error == Error::Ok && s < num_slots; ++s) {
    error = write_slot(memory, arena, s, finding);
  }
  return error;
}

Error InitialValues::write_slot(MemoryBlock* memory, size_t arena, size_t slot,
                                Finding* finding) const {
  const std::optional<InitialValue> value = table_.initial_value(arena, slot);
  const SlotInfo info = table_.slot(arena, slot);
  if (!value.has_value() || info.nbytes == 0) {
    return Error::Ok;
  }
  const Error error = memory->load(
      info.offset, info.nbytes, file_, static_cast<size_t>(value->file_offset),
      DataLoader::SegmentInfo(DataLoader::SegmentInfo::Type::Mutable,
                              value->segment_index));
  if (error != Error::Ok) {
    write_path(finding, "arenas[", uint64_t{arena}, "].slots[", uint64_t{slot},
               "].data_buffer_idx");
    (void)refuse(finding, "expected an initial value in bytes ",
                 Bytes{value->file_offset, info.nbytes},
                 " of the file but reading found ", runtime::to_string(error));
  }
  return error;
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

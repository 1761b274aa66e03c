#include "initial_values.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {

using runtime::DataLoader;
using runtime::Error;

Error InitialValues::write(const ArenaPool& pool) const {
  Error error = Error::Ok;
  for (size_t a = 0; error == Error::Ok && a < table_.num_arenas(); ++a) {
    error = write_arena(pool, a);
  }
  return error;
}

Error InitialValues::reset(ArenaPool* pool, size_t arena) const {
  pool->zero(arena, 0, table_.arena(arena).size);
  return write_arena(*pool, arena);
}

Error InitialValues::reset(ArenaPool* pool, size_t arena, size_t slot) const {
  const SlotInfo info = table_.slot(arena, slot);
  pool->zero(arena, info.offset, info.nbytes);
  return write_slot(*pool, arena, slot);
}

Error InitialValues::write_arena(const ArenaPool& pool, size_t arena) const {
  const size_t num_slots = table_.arena(arena).num_slots;
  Error error = Error::Ok;
  for (size_t s = 0; error == Error::Ok && s < num_slots; ++s) {
    error = write_slot(pool, arena, s);
  }
  return error;
}

Error InitialValues::write_slot(const ArenaPool& pool, size_t arena,
                                size_t slot) const {
  const std::optional<InitialValue> value = table_.initial_value(arena, slot);
  const SlotInfo info = table_.slot(arena, slot);
  if (!value.has_value() || info.nbytes == 0) {
    return Error::Ok;
  }
  return file_.load_into(
      static_cast<size_t>(value->file_offset), info.nbytes,
      DataLoader::SegmentInfo(DataLoader::SegmentInfo::Type::Mutable,
                              value->segment_index),
      pool.spans()[arena].data() + info.offset);
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

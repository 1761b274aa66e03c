// What Python sees of arenas: their layout as plain values, slots as tensors.

#include <nanobind/stl/string.h>

#include "element_type.h"
#include "handles.h"
#include "raising.h"
#include "torch_exchange.h"

namespace nb = nanobind;

namespace pte_arenas {

using executorch::extension::arenas::ArenaInfo;
using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::Lifetime;
using executorch::extension::arenas::SlotInfo;
using executorch::extension::arenas::internal::element_type;
using executorch::runtime::Error;
using executorch::runtime::Result;

namespace {

template <typename Items>
nb::tuple tuple_of(const Items& items) {
  nb::list list;
  for (const auto item : items) {
    list.append(nb::int_(item));
  }
  return nb::tuple(list);
}

nb::str str_of(std::string_view text) {
  return nb::str(text.data(), text.size());
}

nb::dict values_of(const SlotInfo& slot) {
  nb::dict values;
  values["fqn"] = str_of(slot.name);
  values["dtype"] = element_type(static_cast<int>(slot.scalar_type)).name;
  values["sizes"] = tuple_of(slot.sizes);
  values["dim_order"] = tuple_of(slot.dim_order);
  values["offset"] = slot.offset;
  values["nbytes"] = slot.nbytes;
  values["data_buffer_idx"] = slot.data_buffer_idx;
  return values;
}

nb::dict values_of(const ArenaTable& table, size_t index) {
  const ArenaInfo arena = table.arena(index);
  nb::list slots;
  for (size_t s = 0; s < arena.num_slots; ++s) {
    slots.append(values_of(table.slot(index, s)));
  }
  nb::dict values;
  values["name"] = str_of(arena.name);
  values["size"] = arena.size;
  values["alignment"] = arena.alignment;
  values["lifetime"] = arena.lifetime == Lifetime::State ? "state" : "scratch";
  values["device_type"] = arena.device.is_cpu() ? "cpu" : "cuda";
  values["device_index"] = static_cast<int>(arena.device.index());
  values["slots"] = slots;
  return values;
}

/// A view of a slot's bytes that shares ownership of the session.
struct SlotView {
  static constexpr size_t kMaxRank = 16;

  std::shared_ptr<SessionHandle> session;
  dlpack::ManagedTensor managed;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];

  SlotView(std::shared_ptr<SessionHandle> owner, const SlotInfo& slot,
           void* data)
      : session(std::move(owner)) {
    int64_t stride = 1;
    for (size_t i = slot.dim_order.size(); i > 0; --i) {
      const uint8_t dim = slot.dim_order[i - 1];
      shape[dim] = slot.sizes[dim];
      strides[dim] = stride;
      stride *= slot.sizes[dim] > 0 ? slot.sizes[dim] : 1;
    }
    managed.version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
    managed.context = this;
    managed.deleter = [](dlpack::ManagedTensor* tensor) {
      delete static_cast<SlotView*>(tensor->context);
    };
    managed.flags = 0;
    managed.tensor = {data,
                      {dlpack::kCpu, 0},
                      static_cast<int32_t>(slot.sizes.size()),
                      dlpack_type(slot.scalar_type),
                      shape,
                      strides,
                      0};
  }
};

}  // namespace

nb::list ProgramHandle::arenas() const {
  nb::list arenas;
  for (size_t a = 0; a < program_->table().num_arenas(); ++a) {
    arenas.append(values_of(program_->table(), a));
  }
  return arenas;
}

nb::object SessionHandle::slot_tensor(std::string_view arena,
                                      std::string_view slot) {
  const ArenaTable& table = session_->program()->table();
  const Result<size_t> a = table.find_arena(arena);
  const Result<size_t> s = a.ok() ? table.find_slot(*a, slot) : a.error();
  const auto bytes = session_->slot(arena, slot);
  if (!s.ok() || !bytes.ok()) {
    raise_runtime_error("slot", Error::NotFound);
  }
  const SlotInfo info = table.slot(*a, *s);
  if (dlpack_type(info.scalar_type).lanes == 0) {
    raise_type_error("slot '" + std::string(slot) +
                     "': expected a dtype that torch can "
                     "view but found " +
                     element_type(static_cast<int>(info.scalar_type)).name);
  }
  auto* const view = new SlotView(shared_from_this(), info, bytes->data());
  return TorchExchange::get().own(&view->managed);
}

}  // namespace pte_arenas

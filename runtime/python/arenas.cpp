// What Python sees of arenas: their layout as plain values, slots as tensors.

#include <nanobind/stl/string.h>

#include "element_type.h"
#include "handles.h"
#include "raising.h"
#include "tensor_block.h"
#include "torch_exchange.h"
#include "words.h"

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

/// Sizes and strides of a slot as torch has them.
void describe(const SlotInfo& slot, int64_t* shape, int64_t* strides) {
  int64_t stride = 1;
  for (size_t i = slot.dim_order.size(); i > 0; --i) {
    const uint8_t dim = slot.dim_order[i - 1];
    shape[dim] = slot.sizes[dim];
    strides[dim] = stride;
    stride *= slot.sizes[dim] > 0 ? slot.sizes[dim] : 1;
  }
}

dlpack::Tensor tensor_of(const SlotInfo& slot, void* data, int64_t* shape,
                         int64_t* strides) {
  describe(slot, shape, strides);
  return {data,
          {dlpack::kCpu, 0},
          static_cast<int32_t>(slot.sizes.size()),
          dlpack_type(slot.scalar_type),
          shape,
          strides,
          0};
}

/// `float32 of sizes (2, 3)`
std::string in_words(const SlotInfo& slot) {
  InputType type;
  type.is_tensor = true;
  type.scalar_type = slot.scalar_type;
  type.sizes.assign(slot.sizes.begin(), slot.sizes.end());
  return type.in_words();
}

bool fits(const dlpack::Tensor& tensor, const SlotInfo& slot) {
  const size_t rank = slot.sizes.size();
  bool fits = tensor.device.type == dlpack::kCpu &&
              tensor.dtype == dlpack_type(slot.scalar_type) &&
              tensor.ndim == static_cast<int32_t>(rank);
  for (size_t d = 0; fits && d < rank; ++d) {
    fits = tensor.shape[d] == slot.sizes[d];
  }
  return fits;
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
    managed.version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
    managed.context = this;
    managed.deleter = [](dlpack::ManagedTensor* tensor) {
      delete static_cast<SlotView*>(tensor->context);
    };
    managed.flags = 0;
    managed.tensor = tensor_of(slot, data, shape, strides);
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

SlotInfo SessionHandle::slot_info(std::string_view arena,
                                  std::string_view slot) const {
  const ArenaTable& table = session_->program()->table();
  const Result<size_t> a = table.find_arena(arena);
  const Result<size_t> s = a.ok() ? table.find_slot(*a, slot) : a.error();
  if (!s.ok()) {
    raise_runtime_error("slot", Error::NotFound);
  }
  const SlotInfo info = table.slot(*a, *s);
  if (dlpack_type(info.scalar_type).lanes == 0) {
    raise_type_error("slot '" + std::string(slot) +
                     "': expected a dtype that torch can "
                     "view but found " +
                     element_type(static_cast<int>(info.scalar_type)).name);
  }
  return info;
}

nb::object SessionHandle::slot_tensor(std::string_view arena,
                                      std::string_view slot) {
  const SlotInfo info = slot_info(arena, slot);
  const ArenaTable& table = session_->program()->table();
  const auto device = table.arena(*table.find_arena(arena)).device;
  const auto bytes = session_->slot(arena, slot);
  if (!device.is_cpu()) {
    raise_wrong_use("slot '" + std::string(slot) +
                    "': expected an arena on cpu for a view but found cuda:" +
                    std::to_string(device.index()) +
                    ": copy with clone() and copy_from()");
  }
  auto* const view = new SlotView(shared_from_this(), info, bytes->data());
  return TorchExchange::get().own(&view->managed);
}

nb::object SessionHandle::clone_slot(std::string_view arena,
                                     std::string_view slot) {
  const SlotInfo info = slot_info(arena, slot);
  TensorBlock::Owner block = TensorBlock::allocate(info.nbytes);
  if (block == nullptr) {
    raise_memory_error("slot '" + std::string(slot) +
                       "': expected memory for a copy of " +
                       std::to_string(info.nbytes) + " bytes but found none");
  }
  auto* const data = reinterpret_cast<uint8_t*>(block->data());
  Error error = Error::Ok;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    error = session_->copy_out(arena, slot, {data, info.nbytes});
  }
  if (error != Error::Ok) {
    raise_runtime_error("slot '" + std::string(slot) + "': copying", error);
  }
  block->managed.tensor = tensor_of(info, data, block->shape, block->strides);
  return TorchExchange::get().own(&block.release()->managed);
}

void SessionHandle::copy_to_slot(std::string_view arena, std::string_view slot,
                                 nb::handle tensor) {
  const SlotInfo info = slot_info(arena, slot);
  const TorchExchange& torch = TorchExchange::get();
  const std::string where = "slot '" + std::string(slot) + "'";
  dlpack::Tensor given;
  const bool is_tensor = torch.is_tensor(tensor);
  if (!is_tensor || !torch.describe(tensor, &given) || !fits(given, info)) {
    const std::string message = where + ": expected " + in_words(info) +
                                " but found " + found_instead_of_tensor(tensor);
    is_tensor ? raise_value_error(message) : raise_type_error(message);
  }
  if (given.data == nullptr && info.nbytes != 0) {
    raise_type_error(where + ": expected a tensor with data but found " +
                     Py_TYPE(tensor.ptr())->tp_name);
  }
  const nb::object plain =
      torch.in_order(tensor, info.dim_order.data(), info.dim_order.size());
  if (!torch.describe(plain, &given) ||
      (given.data == nullptr && info.nbytes != 0)) {
    raise_runtime_error(where + ": reading the tensor", Error::InvalidArgument);
  }
  const auto* const data =
      static_cast<const uint8_t*>(given.data) + given.byte_offset;
  Error error = Error::Ok;
  {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard<std::mutex> lock(mutex_);
    error = session_->copy_in(arena, slot, {data, info.nbytes});
  }
  if (error != Error::Ok) {
    raise_runtime_error(where + ": copying", error);
  }
}

}  // namespace pte_arenas

#include "checks.h"
#include "element_type.h"
#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

using runtime::Error;
using runtime::Span;

bool is_permutation(Span<const uint8_t> dim_order, size_t rank) {
  uint32_t seen = 0;
  for (size_t i = 0; i < dim_order.size() && i < rank; ++i) {
    if (dim_order[i] >= rank || (seen >> dim_order[i] & 1) != 0) {
      return false;
    }
    seen |= 1U << dim_order[i];
  }
  return dim_order.size() == rank;
}

/// Checks of a slot by itself, and against the arena and the initial values.
class SlotCheck {
 public:
  SlotCheck(size_t a, size_t s, Finding* finding)
      : a_(a), s_(s), finding_(finding) {}

  Error check(const ArenaReader& arena,
              const InitialDataReader& initial_data) const {
    const SlotReader slot = arena.slot(s_);
    const ElementType type = element_type(slot.scalar_type());
    if (type.width == 0) {
      at(".scalar_type");
      return refuse(finding_, "expected a known scalar type but found ",
                    slot.scalar_type());
    }
    Error error = check_shape(slot, type);
    if (error != Error::Ok) {
      return error;
    }
    error = check_place(slot, arena, type);
    return error != Error::Ok ? error : check_initial_value(slot, initial_data);
  }

 private:
  void at(const char* field) const {
    write_path(finding_, "arenas[", uint64_t{a_}, "].slots[", uint64_t{s_}, "]",
               field);
  }

  Error check_shape(const SlotReader& slot, const ElementType& type) const {
    const List<int32_t> sizes{slot.sizes()};
    uint64_t nbytes = 0;
    const SizesFault fault = product_of(slot.sizes(), type.width, &nbytes);
    if (fault.kind == SizesFault::Kind::Rank) {
      at(".sizes");
      return refuse(finding_, "expected at most ", uint64_t{kMaxRank},
                    " dimensions but found ", uint64_t{slot.sizes().size()});
    }
    if (fault.kind == SizesFault::Kind::Negative) {
      write_path(finding_, "arenas[", uint64_t{a_}, "].slots[", uint64_t{s_},
                 "].sizes[", uint64_t{fault.dim}, "]");
      return refuse(finding_, "expected at least 0 but found ",
                    slot.sizes()[fault.dim]);
    }
    if (!is_permutation(slot.dim_order(), slot.sizes().size())) {
      at(".dim_order");
      return refuse(finding_, "expected a permutation of 0 to ",
                    uint64_t{slot.sizes().size()}, " (exclusive) but found ",
                    List<uint8_t>{slot.dim_order()});
    }
    if (fault.kind == SizesFault::Kind::Overflow) {
      at(".nbytes");
      return refuse(finding_,
                    "expected a size that fits 64 bits but found sizes ",
                    sizes);
    }
    if (slot.nbytes() != nbytes) {
      at(".nbytes");
      return refuse(finding_, "expected ", nbytes, " for sizes ", sizes, " of ",
                    type.name, " but found ", slot.nbytes());
    }
    return Error::Ok;
  }

  Error check_place(const SlotReader& slot, const ArenaReader& arena,
                    const ElementType& type) const {
    const uint64_t width = type.width;
    if (slot.offset() % width != 0) {
      at(".offset");
      return refuse(finding_, "expected a multiple of ", width, " but found ",
                    slot.offset());
    }
    if (slot.offset() > arena.size() ||
        slot.nbytes() > arena.size() - slot.offset()) {
      at("");
      return refuse(finding_, "expected bytes ",
                    Bytes{slot.offset(), slot.nbytes()},
                    " inside the arena of ", arena.size(), " bytes");
    }
    if (arena.alignment() < width) {
      write_path(finding_, "arenas[", uint64_t{a_}, "].alignment");
      return refuse(finding_, "expected at least ", width, " for slot ",
                    Name{slot.name()}, " but found ", arena.alignment());
    }
    return Error::Ok;
  }

  Error check_initial_value(const SlotReader& slot,
                            const InitialDataReader& initial_data) const {
    const uint32_t index = slot.data_buffer_idx();
    if (index == 0) {
      return Error::Ok;
    }
    at(".data_buffer_idx");
    if (!initial_data.present) {
      return refuse(finding_,
                    "expected 0 in a program without initial data but found ",
                    index);
    }
    if (index >= initial_data.offsets.size()) {
      return refuse(finding_, "expected an index below ",
                    uint64_t{initial_data.offsets.size()}, " but found ",
                    index);
    }
    const uint64_t begin = initial_data.offsets[index];
    const uint64_t size = initial_data.segment_size;
    if (begin > size || slot.nbytes() > size - begin) {
      return refuse(finding_, "expected bytes ", Bytes{begin, slot.nbytes()},
                    " inside the initial data of ", size, " bytes");
    }
    return Error::Ok;
  }

  const size_t a_;
  const size_t s_;
  Finding* const finding_;
};

}  // namespace

SizesFault product_of(Span<const int32_t> sizes, size_t width,
                      uint64_t* nbytes) {
  if (sizes.size() > kMaxRank) {
    return {SizesFault::Kind::Rank, 0};
  }
  bool is_empty = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0) {
      return {SizesFault::Kind::Negative, d};
    }
    is_empty = is_empty || sizes[d] == 0;
  }
  uint64_t product = is_empty ? 0 : width;
  for (size_t d = 0; !is_empty && d < sizes.size(); ++d) {
    const uint64_t size = static_cast<uint64_t>(sizes[d]);
    if (product > UINT64_MAX / size) {
      return {SizesFault::Kind::Overflow, d};
    }
    product *= size;
  }
  *nbytes = product;
  return {};
}

Error check_slot(const ArenaReader& arena, size_t a, size_t s,
                 const InitialDataReader& initial_data, Finding* finding) {
  return SlotCheck(a, s, finding).check(arena, initial_data);
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

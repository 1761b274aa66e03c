#include "checks.h"
#include "element_type.h"
#include "message.h"
#include "name_filter.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

using runtime::Error;
using runtime::Span;

/// The slots checked so far, for the uniqueness of their names.
class SlotNames {
 public:
  explicit SlotNames(const ArenasReader& arenas) : arenas_(arenas) {}

  /// Whether the slot has the name of an earlier one.
  bool repeats(size_t arena, size_t slot, std::string_view name) {
    return filter_.maybe_seen(name) && is_earlier(arena, slot, name);
  }

 private:
  bool is_earlier(size_t arena, size_t slot, std::string_view name) const {
    for (size_t a = 0; a <= arena; ++a) {
      const ArenaReader reader = arenas_.arena(a);
      const size_t end = a < arena ? reader.num_slots() : slot;
      for (size_t s = 0; s < end; ++s) {
        if (reader.slot(s).name() == name) {
          return true;
        }
      }
    }
    return false;
  }

  const ArenasReader& arenas_;
  NameFilter filter_;
};

bool is_earlier_arena(const ArenasReader& arenas, size_t arena,
                      std::string_view name) {
  for (size_t a = 0; a < arena; ++a) {
    if (arenas.arena(a).name() == name) {
      return true;
    }
  }
  return false;
}

Error check_arena(const ArenaReader& arena, size_t a, uint64_t size_max,
                  Finding* finding) {
  const auto at = [=](const char* field) {
    write_path(finding, "arenas[", uint64_t{a}, "]", field);
  };
  if (arena.lifetime() != 0 && arena.lifetime() != 1) {
    at(".lifetime");
    return refuse(finding, "expected 0 (state) or 1 (scratch) but found ",
                  arena.lifetime());
  }
  if (arena.device_type() != 0 && arena.device_type() != 1) {
    at(".device_type");
    return refuse(finding, "expected 0 (cpu) or 1 (cuda) but found ",
                  arena.device_type());
  }
  if (arena.device_index() < 0) {
    at(".device_index");
    return refuse(finding, "expected at least 0 but found ",
                  arena.device_index());
  }
  const uint32_t alignment = arena.alignment();
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    at(".alignment");
    return refuse(finding, "expected a power of two but found ", alignment);
  }
  // A pool that has to find an aligned block asks for size + alignment.
  if (alignment > size_max || arena.size() > size_max - alignment) {
    at(".size");
    return refuse(finding, "expected at most ", size_max - alignment,
                  " bytes but found ", arena.size());
  }
  if (arena.lifetime() == 1 && arena.num_slots() != 0) {
    at(".slots");
    return refuse(finding, "expected no slots in a scratch arena but found ",
                  uint64_t{arena.num_slots()});
  }
  return Error::Ok;
}

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
  SlotCheck(const ProgramReader& program, Finding* finding)
      : initial_data_(program.initial_data()), finding_(finding) {}

  Error check(const ArenaReader& arena, size_t a, size_t s) {
    a_ = a;
    s_ = s;
    const SlotReader slot = arena.slot(s);
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
    return error != Error::Ok ? error : check_initial_value(slot);
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

  Error check_initial_value(const SlotReader& slot) const {
    const uint32_t index = slot.data_buffer_idx();
    if (index == 0) {
      return Error::Ok;
    }
    at(".data_buffer_idx");
    if (!initial_data_.present) {
      return refuse(finding_,
                    "expected 0 in a program without initial data but found ",
                    index);
    }
    if (index >= initial_data_.offsets.size()) {
      return refuse(finding_, "expected an index below ",
                    uint64_t{initial_data_.offsets.size()}, " but found ",
                    index);
    }
    const uint64_t begin = initial_data_.offsets[index];
    const uint64_t size = initial_data_.segment_size;
    if (begin > size || slot.nbytes() > size - begin) {
      return refuse(finding_, "expected bytes ", Bytes{begin, slot.nbytes()},
                    " inside the initial data of ", size, " bytes");
    }
    return Error::Ok;
  }

  const InitialDataReader initial_data_;
  Finding* const finding_;
  size_t a_ = 0;
  size_t s_ = 0;
};

/// Slots are in the order of their offsets, so each needs only the one before.
Error check_order(const ArenaReader& arena, size_t a, Finding* finding) {
  for (size_t s = 1; s < arena.num_slots(); ++s) {
    const SlotReader before = arena.slot(s - 1);
    const SlotReader slot = arena.slot(s);
    const Bytes before_bytes{before.offset(), before.nbytes()};
    const Bytes bytes{slot.offset(), slot.nbytes()};
    if (bytes.begin >= before_bytes.begin + before_bytes.length) {
      continue;
    }
    write_path(finding, "arenas[", uint64_t{a}, "].slots[", uint64_t{s}, "]");
    if (bytes.begin < before_bytes.begin) {
      return refuse(finding,
                    "expected slots in the order of their offsets but found ",
                    Name{slot.name()}, " at ", bytes, " after ", before_bytes);
    }
    return refuse(finding, "expected bytes apart from ", Name{before.name()},
                  " at ", before_bytes, " but found ", bytes);
  }
  return Error::Ok;
}

Error check_name(std::string_view name, bool repeated, Finding* finding) {
  if (name.empty()) {
    return refuse(finding, "expected a name but found none");
  }
  if (repeated) {
    return refuse(finding, "expected a unique name but found ", Name{name},
                  " again");
  }
  return Error::Ok;
}

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

Error check_arenas(const ProgramReader& program, uint64_t size_max,
                   Finding* finding) {
  const ArenasReader arenas = program.arenas();
  NameFilter arena_names;
  SlotNames slot_names(arenas);
  SlotCheck slot_check(program, finding);
  for (size_t a = 0; a < arenas.num_arenas(); ++a) {
    const ArenaReader arena = arenas.arena(a);
    write_path(finding, "arenas[", uint64_t{a}, "].name");
    Error error = check_name(arena.name(),
                             arena_names.maybe_seen(arena.name()) &&
                                 is_earlier_arena(arenas, a, arena.name()),
                             finding);
    if (error == Error::Ok) {
      error = check_arena(arena, a, size_max, finding);
    }
    for (size_t s = 0; error == Error::Ok && s < arena.num_slots(); ++s) {
      const std::string_view name = arena.slot(s).name();
      write_path(finding, "arenas[", uint64_t{a}, "].slots[", uint64_t{s},
                 "].fully_qualified_name");
      error = check_name(name, slot_names.repeats(a, s, name), finding);
      if (error == Error::Ok) {
        error = slot_check.check(arena, a, s);
      }
    }
    if (error == Error::Ok) {
      error = check_order(arena, a, finding);
    }
    if (error != Error::Ok) {
      return error;
    }
  }
  return Error::Ok;
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

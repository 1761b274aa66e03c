#include "checks.h"
#include "message.h"
#include "name_filter.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

using runtime::Error;

/// The names of the arenas and slots checked so far, each kind apart.
class EarlierNames {
 public:
  explicit EarlierNames(const ArenasReader& arenas) : arenas_(arenas) {}

  bool has_arena(size_t arena, std::string_view name) {
    bool found = false;
    const bool search = filter_.maybe_seen(name);
    for (size_t a = 0; search && !found && a < arena; ++a) {
      found = arenas_.arena(a).name() == name;
    }
    return found;
  }

  bool has_slot(size_t arena, size_t slot, std::string_view name) {
    bool found = false;
    const bool search = filter_.maybe_seen(name);
    for (size_t a = 0; search && !found && a <= arena; ++a) {
      found = is_among(arenas_.arena(a), a < arena ? SIZE_MAX : slot, name);
    }
    return found;
  }

 private:
  static bool is_among(const ArenaReader& arena, size_t end,
                       std::string_view name) {
    for (size_t s = 0; s < arena.num_slots() && s < end; ++s) {
      if (arena.slot(s).name() == name) {
        return true;
      }
    }
    return false;
  }

  const ArenasReader& arenas_;
  NameFilter filter_;
};

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

Error check_slots(const ArenaReader& arena, size_t a,
                  const InitialDataReader& initial_data, EarlierNames* names,
                  Finding* finding) {
  for (size_t s = 0; s < arena.num_slots(); ++s) {
    const std::string_view name = arena.slot(s).name();
    write_path(finding, "arenas[", uint64_t{a}, "].slots[", uint64_t{s},
               "].fully_qualified_name");
    Error error = check_name(name, names->has_slot(a, s, name), finding);
    if (error == Error::Ok) {
      error = check_slot(arena, a, s, initial_data, finding);
    }
    if (error != Error::Ok) {
      return error;
    }
  }
  return check_order(arena, a, finding);
}

}  // namespace

Error check_arenas(const ProgramReader& program, uint64_t size_max,
                   Finding* finding) {
  const ArenasReader arenas = program.arenas();
  const InitialDataReader initial_data = program.initial_data();
  EarlierNames names(arenas);
  for (size_t a = 0; a < arenas.num_arenas(); ++a) {
    const ArenaReader arena = arenas.arena(a);
    const std::string_view name = arena.name();
    write_path(finding, "arenas[", uint64_t{a}, "].name");
    Error error = check_name(name, names.has_arena(a, name), finding);
    if (error == Error::Ok) {
      error = check_arena(arena, a, size_max, finding);
    }
    if (error == Error::Ok) {
      error = check_slots(arena, a, initial_data, &names, finding);
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

#include "structure.h"

#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

bool segments_fit(const ProgramReader& program, const ProgramHeader& header,
                  uint64_t file_size) {
  const bool has_room = header.segment_base != 0;
  const uint64_t room = has_room ? file_size - header.segment_base : 0;
  for (size_t i = 0; i < program.num_segments(); ++i) {
    const SegmentReader segment = program.segment(i);
    if (!has_room && segment.size() == 0) {
      continue;  // as ExecuTorch writes programs without segments
    }
    if (segment.offset() > room || segment.size() > room - segment.offset()) {
      return false;
    }
  }
  return true;
}

/**
 * Checks names, up to a total length: an honest file has room for each of its
 * names, while vectors that share one long name many times over have not.
 */
class NameCheck {
 public:
  explicit NameCheck(uint64_t program_size) : budget_(2 * program_size) {}

  bool accepts(std::string_view name) {
    if (name.size() > budget_) {
      return false;
    }
    budget_ -= name.size();
    return is_utf8(name);
  }

  bool accepts(const ArenasReader& arenas) {
    for (size_t i = 0; i < arenas.num_features(); ++i) {
      if (!accepts(arenas.feature(i))) {
        return false;
      }
    }
    for (size_t a = 0; a < arenas.num_arenas(); ++a) {
      const ArenaReader arena = arenas.arena(a);
      if (!accepts(arena.name())) {
        return false;
      }
      for (size_t s = 0; s < arena.num_slots(); ++s) {
        if (!accepts(arena.slot(s).name())) {
          return false;
        }
      }
    }
    return true;
  }

  bool accepts(const ProgramReader& program) {
    for (size_t m = 0; m < program.num_plans(); ++m) {
      if (!accepts(program.plan(m).name())) {
        return false;
      }
    }
    const ArenasReader arenas = program.arenas();
    return !arenas.present() || accepts(arenas);
  }

 private:
  uint64_t budget_;
};

}  // namespace

ProgramReader verify_structure(runtime::Span<const uint8_t> program,
                               const ProgramHeader& header,
                               uint64_t file_size) {
  const ProgramReader damaged(nullptr);
  if (header.program_size > program.size()) {
    return damaged;
  }
  const ProgramReader reader = ProgramReader::verify(
      {program.data(), static_cast<size_t>(header.program_size)});
  return reader.present() && segments_fit(reader, header, file_size) &&
                 NameCheck(header.program_size).accepts(reader)
             ? reader
             : damaged;
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch

// Any bytes: `ArenaTable` gives a verdict with a sentence, and what it accepts
// can be walked.

#include <executorch/extension/arenas/arena_table.h>

#include <cstdlib>

#include "aligned_bytes.h"

using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::Finding;
using executorch::runtime::Error;

namespace {

void expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void walk_arenas(const ArenaTable& table) {
  for (size_t a = 0; a < table.num_arenas(); ++a) {
    const auto arena = table.arena(a);
    expect(table.find_arena(arena.name).ok());
    for (size_t s = 0; s < arena.num_slots; ++s) {
      const auto slot = table.slot(a, s);
      expect(slot.offset <= arena.size &&
             slot.nbytes <= arena.size - slot.offset);
      (void)table.initial_value(a, s);
    }
  }
}

void walk_methods(const ArenaTable& table) {
  for (size_t m = 0; m < table.num_methods(); ++m) {
    for (size_t i = 0; i < table.num_planned_buffers(m); ++i) {
      const auto arena = table.planned_buffer(m, i).arena;
      expect(!arena.has_value() || *arena < table.num_arenas());
    }
    (void)table.mutates_input(m, 0);
    Finding finding;
    const Error error = table.check_method(m, &finding);
    expect((error == Error::Ok) == (finding.path[0] == '\0'));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const AlignedBytes file(bytes, size);
  Finding finding;
  const auto table =
      ArenaTable::parse({file.data(), file.size()}, size, &finding);
  expect(table.ok() == (finding.path[0] == '\0'));
  expect(table.ok() == (finding.message[0] == '\0'));
  if (table.ok()) {
    walk_arenas(*table);
    walk_methods(*table);
  }
  return 0;
}

// What targets without a heap use: ArenaTable and bind_arenas(). Linked with
// nothing but the sources of that core, which this test compiles without
// exceptions and RTTI, for the host and for 32 bits where the compiler can.

#include <executorch/extension/arenas/arena_table.h>
#include <executorch/extension/arenas/bind_arenas.h>
#include <executorch/runtime/platform/abort.h>
#include <executorch/runtime/platform/log.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "program_builder.h"

namespace {

/// While true, whoever asks for memory ends the test.
bool heap_is_forbidden = false;

[[noreturn]] void fail(const char* what, int line) {
  std::fprintf(stderr, "core_test.cpp:%d: %s\n", line, what);
  std::abort();
}

#define CHECK(condition)          \
  do {                            \
    if (!(condition)) {           \
      fail(#condition, __LINE__); \
    }                             \
  } while (false)

}  // namespace

// The linker sends the calls of the core here; see CMakeLists.txt.
extern "C" {

void* __real_malloc(size_t size);
void* __real_calloc(size_t count, size_t size);
void* __real_realloc(void* block, size_t size);

void* __wrap_malloc(size_t size) {
  CHECK(!heap_is_forbidden);
  return __real_malloc(size);
}

void* __wrap_calloc(size_t count, size_t size) {
  CHECK(!heap_is_forbidden);
  return __real_calloc(count, size);
}

void* __wrap_realloc(void* block, size_t size) {
  CHECK(!heap_is_forbidden);
  return __real_realloc(block, size);
}

}  // extern "C"

void* operator new(size_t size) {
  CHECK(!heap_is_forbidden);
  void* const memory = std::malloc(size);
  CHECK(memory != nullptr);
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

// All that the core wants of ExecuTorch's runtime: what to do on a fatal error.
namespace executorch {
namespace runtime {

void runtime_abort() { std::abort(); }

namespace internal {

et_timestamp_t get_log_timestamp() { return 0; }

void vlogf(LogLevel, et_timestamp_t, const char*, const char*, size_t,
           const char* format, va_list arguments) {
  std::vfprintf(stderr, format, arguments);
}

}  // namespace internal
}  // namespace runtime
}  // namespace executorch

namespace {

using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::bind_arenas;
using executorch::extension::arenas::Finding;
using executorch::runtime::Error;
using executorch::runtime::Span;
using pte_arenas::test::counter_program;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;

class WithoutHeap final {
 public:
  WithoutHeap() { heap_is_forbidden = true; }
  ~WithoutHeap() { heap_is_forbidden = false; }
};

void reads_and_binds() {
  FileBytes file = file_of(counter_program());
  alignas(64) static uint8_t activations[64];
  alignas(64) static uint8_t arena[96];
  const WithoutHeap trap;
  Finding finding;
  const Span<const uint8_t> head(file.data(), ArenaTable::kHeadBytes);
  const auto size = ArenaTable::program_size(head, file.size(), &finding);
  CHECK(size.ok());
  const auto table =
      ArenaTable::parse({file.data(), *size}, file.size(), &finding);
  CHECK(table.ok());
  CHECK(table->num_arenas() == 1 && table->arena(0).size == sizeof(arena));
  CHECK(table->slot(0, 1).name == "m");
  CHECK(*table->find_slot(*table->find_arena("state"), "n") == 0);
  CHECK(table->initial_value(0, 0)->file_offset == *size + 16);
  CHECK(table->check_method(*table->find_method("bump")) == Error::Ok);
  CHECK(!table->mutates_input(0, 0));
  Span<uint8_t> planned[] = {{activations, sizeof(activations)}, {}};
  const Span<uint8_t> arenas[] = {{arena, sizeof(arena)}};
  CHECK(bind_arenas(*table, "bump", {planned, 2}, {arenas, 1}) == Error::Ok);
  CHECK(planned[1].data() == arena && planned[1].size() == sizeof(arena));
}

/// The sentence on a file in which the arena has a size.
void refuses(uint64_t arena_size, const std::string& message) {
  auto program = counter_program();
  program.program_arenas->arenas[0]->size = arena_size;
  FileBytes file = file_of(program);
  const WithoutHeap trap;
  Finding finding;
  CHECK(ArenaTable::parse({file.data(), file.size()}, file.size(), &finding)
            .error() == Error::InvalidProgram);
  CHECK(std::strcmp(finding.path, "arenas[0].size") == 0);
  CHECK(finding.message == message);
}

void refuses_what_size_t_cannot_hold() {
  const std::string expected =
      "expected at most " + std::to_string(SIZE_MAX - 64) + " bytes but found ";
  const uint64_t first = uint64_t{SIZE_MAX} - 63;
  refuses(first, expected + std::to_string(first));
  refuses(UINT64_MAX, expected + std::to_string(UINT64_MAX));
  if (sizeof(size_t) == 4) {
    refuses(uint64_t{6} << 30, expected + "6442450944");
  }
}

/// A program that is said to be of 4 GiB and a bit more, in a larger file.
void refuses_a_program_that_memory_cannot_hold() {
  FileBytes file = file_of(counter_program());
  file.data()[16 + 4] = 1;  // the program's size, in 8 bytes
  file.data()[24 + 4] = 1;  // where segments begin
  const WithoutHeap trap;
  Finding finding;
  const Span<const uint8_t> head(file.data(), ArenaTable::kHeadBytes);
  const auto size = ArenaTable::program_size(head, uint64_t{1} << 33, &finding);
  CHECK(size.ok() == (sizeof(size_t) == 8));
  CHECK(size.ok() ||
        std::strcmp(finding.message,
                    "expected a well-formed ExecuTorch program but found "
                    "damaged or truncated data") == 0);
}

}  // namespace

int main() {
  reads_and_binds();
  refuses_what_size_t_cannot_hold();
  refuses_a_program_that_memory_cannot_hold();
  std::printf("%zu bits: passed\n", 8 * sizeof(size_t));
  return 0;
}

// Every allocation on the way to a result fails once: the 1st, the 2nd, and so
// on until nothing fails. The linker sends the allocations of the library and
// of this file through the functions below; see CMakeLists.txt. Leaks are what
// LeakSanitizer looks for, and mappings and blocks of the device are counted.

#include <executorch/extension/arenas/session.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "counter_calls.h"
#include "device_program.h"
#include "guarded_device.h"

namespace {

/// Counts down to the allocation that fails; 0 and less fail none.
int fail_at = 0;
int num_mappings = 0;

bool fails() { return fail_at > 0 && --fail_at == 0; }

}  // namespace

extern "C" {

void* __real_malloc(size_t size);
void* __real_calloc(size_t count, size_t size);
void* __real_mmap(void* at, size_t size, int protection, int flags, int file,
                  off_t offset);
int __real_munmap(void* at, size_t size);
void* __real__Znwm(size_t size);

void* __wrap_malloc(size_t size) {
  return fails() ? nullptr : __real_malloc(size);
}

void* __wrap_calloc(size_t count, size_t size) {
  return fails() ? nullptr : __real_calloc(count, size);
}

void* __wrap_mmap(void* at, size_t size, int protection, int flags, int file,
                  off_t offset) {
  if (fails()) {
    return MAP_FAILED;
  }
  ++num_mappings;
  return __real_mmap(at, size, protection, flags, file, offset);
}

int __wrap_munmap(void* at, size_t size) {
  --num_mappings;
  return __real_munmap(at, size);
}

void* __wrap__Znwm(size_t size) {  // operator new
  if (fails()) {
    throw std::bad_alloc();
  }
  return __real__Znwm(size);
}

}  // extern "C"

namespace {

using executorch::extension::arenas::ArenaProgram;
using executorch::extension::arenas::BorrowedArena;
using executorch::extension::arenas::Finding;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Span;
using pte_arenas::test::bump;
using pte_arenas::test::counter_program;
using pte_arenas::test::device_program;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;
using pte_arenas::test::Floats;
using pte_arenas::test::GuardedDevice;
using pte_arenas::test::LoadedProgram;
using pte_arenas::test::Session;
using pte_arenas::test::SessionOptions;

namespace wire = pte_arenas::wire;

/// What a step gives when `operator new` fails in it.
Error run(const std::function<Error()>& step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return Error::MemoryAllocationFailed;
  }
}

/**
 * Runs a step with each of its allocations failing.
 *
 * @param[in] after_failure Looks at what a failed step left.
 *
 * @returns How many allocations the step has.
 */
int fail_each(const std::function<Error()>& step,
              const std::function<void()>& after_failure) {
  GuardedDevice& device = GuardedDevice::get();
  device.fails = fails;
  const int mappings = num_mappings;
  const size_t blocks = device.num_blocks();
  for (int n = 1;; ++n) {
    fail_at = n;
    const Error error = run(step);
    const bool failed = fail_at == 0;
    fail_at = 0;
    if (!failed) {
      EXPECT_EQ(error, Error::Ok);
      return n - 1;
    }
    EXPECT_TRUE(error == Error::MemoryAllocationFailed ||
                error == Error::AccessFailed)
        << n << ": " << executorch::runtime::to_string(error);
    EXPECT_EQ(num_mappings, mappings) << n;
    EXPECT_EQ(device.num_blocks(), blocks) << n;
    after_failure();
  }
}

wire::ProgramT mapped(wire::ProgramT program) {
  // Large enough that the arena is a mapping.
  program.program_arenas->arenas[0]->size = size_t{1} << 17;
  return program;
}

/// Loads the program, makes a session and calls a method.
Error call_from_scratch(FileBytes& file, const SessionOptions& options) {
  auto program = ArenaProgram::load(file.data(), file.size());
  if (!program.ok()) {
    return program.error();
  }
  auto session = Session::create(*program, options);
  if (!session.ok()) {
    return session.error();
  }
  return pte_arenas::test::try_bump(**session, 1).error();
}

TEST(AllocationFailureTest, LeavesNothingOnTheHost) {
  FileBytes file = file_of(mapped(counter_program()));
  EXPECT_GT(fail_each([&] { return call_from_scratch(file, {}); }, [] {}), 10);
}

TEST(AllocationFailureTest, LeavesNothingOnADevice) {
  FileBytes file = file_of(device_program());
  EXPECT_GT(fail_each([&] { return call_from_scratch(file, {}); }, [] {}), 20);
}

TEST(AllocationFailureTest, LeavesKeptMemoryAsItWas) {
  FileBytes file = file_of(counter_program());
  alignas(64) uint8_t memory[96] = {1, 2, 3};
  const BorrowedArena source{"state", {memory, sizeof(memory)}, true};
  SessionOptions options;
  options.borrowed = {&source, 1};
  const auto create = [&] {
    auto program = ArenaProgram::load(file.data(), file.size());
    return program.ok() ? Session::create(*program, options).error()
                        : program.error();
  };
  EXPECT_GT(fail_each(create,
                      [&] {
                        EXPECT_EQ(memory[0] + memory[1] + memory[2], 6);
                        EXPECT_EQ(memory[95], 0);
                      }),
            5);
}

/// A session in which loading a method fails can load it later.
void load_again_and_again(const wire::ProgramT& file, const Floats& bumped) {
  const LoadedProgram program(file);
  const auto session = program.session();
  const auto load = [&] { return session->load_method("bump").error(); };
  EXPECT_GT(fail_each(load,
                      [&] {
                        EXPECT_EQ(session->loaded_method("bump"), nullptr);
                        EXPECT_EQ(pte_arenas::test::get(*session),
                                  (Floats{5, 6}));
                        ASSERT_EQ(session->unload_method("get"), Error::Ok);
                      }),
            5);
  EXPECT_EQ(bump(*session, 1), bumped);
}

TEST(AllocationFailureTest, OfLoadingAMethodLeavesItsSession) {
  load_again_and_again(counter_program(), {6, 7});
  load_again_and_again(device_program(), {12, 14});
}

TEST(AllocationFailureTest, OfSnapshotsAndForksLeavesTheSession) {
  for (const wire::ProgramT& file :
       {mapped(counter_program()), device_program()}) {
    const LoadedProgram program(file);
    const auto session = program.session();
    Floats n(2);
    const auto is_as_before = [&] {
      const Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(n.data()), 8);
      EXPECT_EQ(session->copy_out("state", "n", bytes), Error::Ok);
      EXPECT_EQ(n, (Floats{5, 6}));
    };
    const auto snapshot = [&] { return session->snapshot().error(); };
    EXPECT_GT(fail_each(snapshot, is_as_before), 1);
    const auto fork = [&] { return session->fork().error(); };
    EXPECT_GT(fail_each(fork, is_as_before), 3);
  }
}

}  // namespace

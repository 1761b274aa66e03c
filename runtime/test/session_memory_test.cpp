// Where the memory of a session may come from, but for devices.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "counter_calls.h"

using executorch::extension::arenas::BorrowedArena;
using executorch::runtime::Error;
using executorch::runtime::Span;
using pte_arenas::test::bump;
using pte_arenas::test::counter_program;
using pte_arenas::test::CounterOptions;
using pte_arenas::test::Floats;
using pte_arenas::test::get;
using pte_arenas::test::LoadedProgram;
using pte_arenas::test::Session;
using pte_arenas::test::SessionOptions;
using pte_arenas::test::try_bump;

namespace wire = pte_arenas::wire;

namespace {

/// Memory of a caller's, full of what was there before.
class BorrowedMemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kArenaSize = 96;

  BorrowedMemoryTest() { std::fill(memory_, memory_ + sizeof(memory_), 0xee); }

  SessionOptions options(bool keep = false) {
    return borrow({{"state", {memory_, kArenaSize}, keep}});
  }

  SessionOptions borrow(std::vector<BorrowedArena> sources) {
    sources_ = std::move(sources);
    SessionOptions options;
    options.borrowed = {sources_.data(), sources_.size()};
    return options;
  }

  Floats state() const {
    Floats floats(2);
    std::memcpy(floats.data(), memory_, 8);
    return floats;
  }

  alignas(64) uint8_t memory_[256];
  std::vector<BorrowedArena> sources_;
  const LoadedProgram program_;
};

TEST_F(BorrowedMemoryTest, IsTheArenaAndStartsFromInitialValues) {
  const auto session = program_.session(options());
  EXPECT_EQ(session->arena("state")->data(), memory_);
  EXPECT_EQ(session->arena("state")->size(), kArenaSize);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  EXPECT_TRUE(std::all_of(memory_ + 8, memory_ + kArenaSize,
                          [](uint8_t byte) { return byte == 0; }));
  EXPECT_EQ(memory_[kArenaSize], 0xee) << "behind the arena";
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
  EXPECT_EQ(state(), (Floats{6, 7}));
  ASSERT_EQ(session->reset(), Error::Ok);
  EXPECT_EQ(state(), (Floats{5, 6}));
}

TEST_F(BorrowedMemoryTest, IsKept) {
  bump(*program_.session(options()), 1);
  const auto session = program_.session(options(/*keep=*/true));
  EXPECT_EQ(get(*session), (Floats{6, 7}));
  EXPECT_EQ(bump(*session, 1), (Floats{7, 8}));
  ASSERT_EQ(session->reset("state"), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
}

TEST_F(BorrowedMemoryTest, MayBeLargerThanTheArena) {
  const auto session =
      program_.session(borrow({{"state", {memory_, sizeof(memory_)}}}));
  EXPECT_EQ(session->arena("state")->size(), kArenaSize);
  EXPECT_EQ(memory_[kArenaSize], 0xee);
}

TEST_F(BorrowedMemoryTest, IsNotWrittenByLoadingOptionalArenas) {
  CounterOptions optional;
  optional.require_arenas = false;
  const LoadedProgram program(counter_program(optional), optional);
  const auto session = program.session(options());
  bump(*session, 1);
  EXPECT_EQ(get(*session), (Floats{6, 7}));
}

TEST_F(BorrowedMemoryTest, MayBeThatOfSomeArenas) {
  auto file = counter_program();
  auto& arenas = file.program_arenas->arenas;
  arenas.push_back(std::make_unique<wire::ProgramArenaT>());
  arenas[1]->name = "other";
  arenas[1]->size = 16;
  const LoadedProgram program(file);
  const auto session =
      program.session(borrow({{"other", {memory_ + 128, 16}, true}}));
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
  EXPECT_EQ(session->arena("other")->data(), memory_ + 128);
  EXPECT_EQ(memory_[128], 0xee);
  EXPECT_EQ(program.refusal(borrow(
                {{"state", {memory_, 128}}, {"other", {memory_ + 64, 16}}})),
            "borrowed[1].memory: expected bytes apart from those for arena "
            "'state' but found an overlap");
}

TEST_F(BorrowedMemoryTest, IsRefusedWhereItDoesNotFit) {
  const auto refusal = [&](const char* arena, Span<uint8_t> memory) {
    return program_.refusal(borrow({{arena, memory}}));
  };
  EXPECT_EQ(refusal("State", {memory_, kArenaSize}),
            "borrowed[0].arena: expected the name of an arena but found "
            "'State'");
  EXPECT_EQ(refusal("state", {}),
            "borrowed[0].memory: expected memory for arena 'state' but found "
            "null");
  EXPECT_EQ(refusal("state", {memory_, kArenaSize - 1}),
            "borrowed[0].memory: expected at least 96 bytes for arena 'state' "
            "but found 95");
  EXPECT_EQ(refusal("state", {memory_ + 16, kArenaSize}),
            "borrowed[0].memory: expected an address aligned to 64 bytes for "
            "arena 'state' but found one aligned to 16");
  EXPECT_EQ(program_.refusal(borrow({{"state", {memory_, kArenaSize}},
                                     {"state", {memory_ + 128, kArenaSize}}})),
            "borrowed[1].arena: expected an arena borrowed once but found "
            "'state' again");
  EXPECT_EQ(std::count(memory_, memory_ + sizeof(memory_), 0xee),
            static_cast<ptrdiff_t>(sizeof(memory_)))
      << "written by a session that was refused";
}

TEST_F(BorrowedMemoryTest, HasMoreBytesWhereXnnpackReadsBehind) {
  auto file = counter_program();
  auto& plan = *file.execution_plan[1];
  plan.delegates.push_back(std::make_unique<wire::BackendDelegateT>());
  plan.delegates[0]->id = "XnnpackBackend";
  const LoadedProgram program(file);
  EXPECT_EQ(program.refusal(borrow({{"state", {memory_, kArenaSize + 63}}})),
            "borrowed[0].memory: expected at least 160 bytes for arena "
            "'state', of which XNNPACK reads the last 64, but found 159");
  const auto session =
      program.session(borrow({{"state", {memory_, kArenaSize + 64}}}));
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
}

/// The counter program, `bump` of which computes in a scratch arena.
wire::ProgramT program_with_scratch() {
  auto program = counter_program();
  auto& arenas = program.program_arenas->arenas;
  arenas.push_back(std::make_unique<wire::ProgramArenaT>());
  arenas[1]->name = "scratch";
  arenas[1]->size = 64;
  arenas[1]->lifetime = wire::ArenaLifetime::SCRATCH;
  auto& bump = *program.execution_plan[0];
  bump.non_const_buffer_sizes.push_back(0);
  bump.arena_bindings.push_back(std::make_unique<wire::ArenaBindingT>());
  bump.arena_bindings[1]->memory_id = 3;
  bump.arena_bindings[1]->arena = 1;
  // Value 3 is n + x, in scratch memory, and value 4 the number 0.
  bump.values.push_back(std::make_unique<wire::EValueT>(*bump.values[0]));
  bump.values[3]->val.AsTensor()->allocation_info->memory_id = 3;
  bump.values.push_back(std::make_unique<wire::EValueT>(*bump.values[2]));
  bump.values[4]->val.AsInt()->int_val = 0;
  auto& instructions = bump.chains[0]->instructions;
  instructions.push_back(
      std::make_unique<wire::InstructionT>(*instructions[0]));
  instructions[0]->instr_args.AsKernelCall()->args = {0, 1, 2, 3, 3};
  instructions[1]->instr_args.AsKernelCall()->args = {3, 1, 4, 0, 0};
  return program;
}

class SharedScratchTest : public ::testing::Test {
 protected:
  static SessionOptions from(const Session& other) {
    SessionOptions options;
    options.scratch_from = &other;
    return options;
  }

  const LoadedProgram program_{program_with_scratch()};
  std::unique_ptr<Session> first_ = program_.session();
  std::unique_ptr<Session> second_ = program_.session(from(*first_));
};

TEST_F(SharedScratchTest, IsOneBlockUnderStatesOfTheirOwn) {
  EXPECT_EQ(first_->arena("scratch")->data(),
            second_->arena("scratch")->data());
  EXPECT_NE(program_.session()->arena("scratch")->data(),
            first_->arena("scratch")->data());
  EXPECT_EQ(bump(*first_, 1), (Floats{6, 7}));
  EXPECT_EQ(bump(*second_, 10), (Floats{15, 16}));
  EXPECT_EQ(bump(*first_, 1), (Floats{7, 8}));
  EXPECT_EQ(get(*second_), (Floats{15, 16}));
}

TEST_F(SharedScratchTest, MakesOverlapOfTheSessionsAnError) {
  const auto third = program_.session(from(*second_));
  const auto alone = program_.session();
  {
    const auto use = first_->use();
    ASSERT_TRUE(use.ok());
    EXPECT_EQ(try_bump(*second_, 1).error(), Error::InvalidState);
    EXPECT_EQ(try_bump(*third, 1).error(), Error::InvalidState);
    EXPECT_EQ(bump(*alone, 1), (Floats{6, 7}));
  }
  EXPECT_EQ(bump(*second_, 1), (Floats{6, 7}));
}

TEST_F(SharedScratchTest, OutlivesTheSessionThatItIsFrom) {
  first_.reset();
  EXPECT_EQ(bump(*second_, 1), (Floats{6, 7}));
}

TEST_F(SharedScratchTest, IsOfTheSameProgramAndFromOnePlace) {
  const LoadedProgram other(program_with_scratch());
  EXPECT_EQ(other.refusal(from(*first_)),
            "scratch_from: expected a session of the same program but found "
            "one of another");
  alignas(64) uint8_t memory[64];
  const BorrowedArena source{"scratch", {memory, sizeof(memory)}};
  SessionOptions options = from(*first_);
  options.borrowed = {&source, 1};
  EXPECT_EQ(program_.refusal(options),
            "borrowed[0].arena: expected one source of memory for scratch "
            "arena 'scratch' but found borrowed memory and another session's");
  options.scratch_from = nullptr;
  const auto session = program_.session(options);
  EXPECT_EQ(session->arena("scratch")->data(), memory);
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
}

size_t resident_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(LargeArenaTest, HoldsStateBeyond32Bits) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  auto file = counter_program();
  auto& arena = *file.program_arenas->arenas[0];
  arena.size = 6 * kGiB;
  std::swap(arena.slots[0], arena.slots[1]);  // in the order of offsets
  arena.slots[1]->offset = 5 * kGiB;
  for (auto& plan : file.execution_plan) {
    auto& place = *plan->values[0]->val.AsTensor()->allocation_info;
    place.memory_offset_high = 1;
    place.memory_offset_low = kGiB;
  }
  const size_t before = resident_bytes();
  const LoadedProgram program(file);
  const auto session = program.session();
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
  EXPECT_EQ(get(*session), (Floats{6, 7}));
  const auto slot = *session->slot("state", "n");
  EXPECT_EQ(slot.data() - session->arena("state")->data(),
            static_cast<ptrdiff_t>(5 * kGiB));
  float n[2];
  std::memcpy(n, slot.data(), sizeof(n));
  EXPECT_EQ(Floats(n, n + 2), (Floats{6, 7}));
  ASSERT_EQ(session->reset(), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  EXPECT_LT(resident_bytes(), before + kGiB / 16);
}

TEST(CopyTest, CopiesASlotInAndOut) {
  const LoadedProgram program;
  const auto session = program.session();
  float n[2] = {40, 50};
  auto* const bytes = reinterpret_cast<uint8_t*>(n);
  ASSERT_EQ(session->copy_in("state", "n", {bytes, 8}), Error::Ok);
  EXPECT_EQ(bump(*session, 2), (Floats{42, 52}));
  ASSERT_EQ(session->copy_out("state", "n", {bytes, 8}), Error::Ok);
  EXPECT_EQ(Floats(n, n + 2), (Floats{42, 52}));
  for (const size_t size : {0, 7}) {
    EXPECT_EQ(session->copy_in("state", "n", {bytes, size}),
              Error::InvalidArgument);
    EXPECT_EQ(session->copy_out("state", "n", {bytes, size}),
              Error::InvalidArgument);
  }
  EXPECT_EQ(session->copy_in("states", "n", {bytes, 8}), Error::NotFound);
  EXPECT_EQ(session->copy_out("state", "o", {bytes, 8}), Error::NotFound);
  const auto use = session->use();
  EXPECT_EQ(session->copy_in("state", "n", {bytes, 8}), Error::InvalidState);
  EXPECT_EQ(session->copy_out("state", "n", {bytes, 8}), Error::InvalidState);
}

}  // namespace

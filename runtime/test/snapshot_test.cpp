// Snapshots and forks of sessions.

#include <executorch/extension/arenas/snapshot.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "counter_calls.h"
#include "device_program.h"
#include "guarded_device.h"

using executorch::extension::arenas::BorrowedArena;
using executorch::extension::arenas::ForkOptions;
using executorch::extension::arenas::Snapshot;
using executorch::runtime::Error;
using executorch::runtime::Span;
using pte_arenas::test::bump;
using pte_arenas::test::counter_program;
using pte_arenas::test::CounterOptions;
using pte_arenas::test::device_program;
using pte_arenas::test::Floats;
using pte_arenas::test::get;
using pte_arenas::test::GuardedDevice;
using pte_arenas::test::LoadedProgram;
using pte_arenas::test::Session;
using pte_arenas::test::SessionOptions;

namespace wire = pte_arenas::wire;

namespace {

/// The counter program with a second state arena, `more`, of one slot `k`, and
/// a scratch arena.
wire::ProgramT three_arenas() {
  wire::ProgramT program = counter_program();
  auto more = std::make_unique<wire::ProgramArenaT>();
  more->name = "more";
  more->size = size_t{1} << 20;
  more->alignment = 64;
  auto slot = std::make_unique<wire::ArenaSlotT>();
  slot->fully_qualified_name = "k";
  slot->scalar_type = wire::ScalarType::BYTE;
  slot->sizes = {1 << 20};
  slot->dim_order = {0};
  slot->nbytes = size_t{1} << 20;
  more->slots.push_back(std::move(slot));
  auto scratch = std::make_unique<wire::ProgramArenaT>();
  scratch->name = "scratch";
  scratch->size = 64;
  scratch->alignment = 64;
  scratch->lifetime = wire::ArenaLifetime::SCRATCH;
  program.program_arenas->arenas.push_back(std::move(more));
  program.program_arenas->arenas.push_back(std::move(scratch));
  return program;
}

TEST(SnapshotTest, RestoresWhatWas) {
  const LoadedProgram program;
  const auto session = program.session();
  bump(*session, 1);
  const auto snapshot = session->snapshot();
  ASSERT_TRUE(snapshot.ok());
  bump(*session, 10);
  ASSERT_EQ(session->restore(*snapshot), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{6, 7}));
  const auto other = program.session();
  ASSERT_EQ(other->restore(*snapshot), Error::Ok);
  EXPECT_EQ(get(*other), (Floats{6, 7})) << "any session of the program";
}

TEST(SnapshotTest, ReusesMemory) {
  const LoadedProgram program(three_arenas());
  const auto session = program.session();
  Snapshot snapshot;
  ASSERT_EQ(session->snapshot(&snapshot), Error::Ok);
  uint8_t* const bytes = snapshot.arena("more")->data();
  session->slot("more", "k")->data()[5] = 1;
  ASSERT_EQ(session->snapshot(&snapshot), Error::Ok);
  EXPECT_EQ(snapshot.arena("more")->data(), bytes);
  EXPECT_EQ(bytes[5], 1);
  ASSERT_EQ(session->reset(), Error::Ok);
  ASSERT_EQ(session->snapshot(&snapshot), Error::Ok);
  EXPECT_EQ(bytes[5], 0);

  const LoadedProgram other;
  ASSERT_EQ(other.session()->snapshot(&snapshot), Error::Ok);
  EXPECT_EQ(snapshot.program(), other.get());
  EXPECT_EQ(snapshot.arena("more").error(), Error::NotFound);
}

TEST(SnapshotTest, RestoresArenasByName) {
  const LoadedProgram program(three_arenas());
  const auto session = program.session();
  const auto snapshot = session->snapshot();
  uint8_t* const more = session->slot("more", "k")->data();
  const auto disturb = [&] {
    bump(*session, 1);
    more[5] = 1;
  };
  disturb();
  const std::string_view only_more[] = {"more"};
  ASSERT_EQ(session->restore(*snapshot, {only_more, 1}), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{6, 7}));
  EXPECT_EQ(more[5], 0);
  disturb();
  for (const char* wrong : {"scratch", "mode"}) {
    const std::string_view names[] = {"state", wrong};
    EXPECT_EQ(session->restore(*snapshot, {names, 2}), Error::NotFound);
    EXPECT_EQ(get(*session), (Floats{7, 8})) << "nothing changes";
  }
  ASSERT_EQ(session->restore(*snapshot, {}), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{7, 8}));
}

TEST(SnapshotTest, RefusesThoseOfOtherPrograms) {
  const LoadedProgram program;
  const LoadedProgram other;
  const auto session = program.session();
  bump(*session, 1);
  const auto snapshot = other.session()->snapshot();
  EXPECT_EQ(session->restore(*snapshot), Error::InvalidArgument);
  EXPECT_EQ(session->restore(*snapshot, {}), Error::InvalidArgument);
  EXPECT_EQ(session->restore(Snapshot()), Error::InvalidArgument);
  EXPECT_EQ(get(*session), (Floats{6, 7}));
}

TEST(SnapshotTest, CanBeMadeByHand) {
  const LoadedProgram program(three_arenas());
  auto snapshot = Snapshot::create(program.get());
  ASSERT_TRUE(snapshot.ok());
  const Floats state = {20, 30};
  const auto slot = snapshot->slot("state", "n");
  ASSERT_EQ(slot->size(), sizeof(float) * state.size());
  EXPECT_EQ(slot->data(), snapshot->arena("state")->data());
  std::memcpy(slot->data(), state.data(), slot->size());
  EXPECT_EQ(snapshot->slot("state", "x").error(), Error::NotFound);
  EXPECT_EQ(snapshot->slot("scratch", "x").error(), Error::NotFound);
  const auto session = program.session();
  ASSERT_EQ(session->restore(*snapshot), Error::Ok);
  EXPECT_EQ(get(*session), state);
}

TEST(SnapshotTest, RefusesOverlappingUse) {
  const LoadedProgram program;
  const auto session = program.session();
  Snapshot snapshot;
  ASSERT_EQ(session->snapshot(&snapshot), Error::Ok);
  const auto use = session->use();
  EXPECT_EQ(session->snapshot().error(), Error::InvalidState);
  EXPECT_EQ(session->snapshot(&snapshot), Error::InvalidState);
  EXPECT_EQ(session->restore(snapshot), Error::InvalidState);
  EXPECT_EQ(session->restore(snapshot, {}), Error::InvalidState);
  EXPECT_EQ(session->fork().error(), Error::InvalidState);
}

class ForkTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Session> fork_of(Session& session) {
    auto forked = session.fork({GetParam()});
    EXPECT_TRUE(forked.ok());
    return std::move(*forked);
  }
};

TEST_P(ForkTest, IsIndependentBothWays) {
  const LoadedProgram program(three_arenas());
  auto session = program.session();
  bump(*session, 1);
  const Span<uint8_t> more = *session->slot("more", "k");
  more[5] = 1;
  const auto forked = fork_of(*session);
  EXPECT_EQ(session->slot("more", "k")->data(), more.data());
  EXPECT_EQ(get(*forked), (Floats{6, 7}));
  const auto grandchild = fork_of(*forked);
  bump(*session, 10);
  bump(*forked, 20);
  more[6] = 2;
  forked->slot("more", "k")->data()[7] = 3;
  const auto late = fork_of(*session);
  EXPECT_EQ(get(*session), (Floats{16, 17}));
  EXPECT_EQ(get(*forked), (Floats{26, 27}));
  const auto bytes = [](Session& of) {
    const uint8_t* const k = of.slot("more", "k")->data();
    return std::vector<int>(k + 5, k + 8);
  };
  EXPECT_EQ(bytes(*session), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(bytes(*forked), (std::vector<int>{1, 0, 3}));
  EXPECT_EQ(bytes(*grandchild), (std::vector<int>{1, 0, 0}));
  EXPECT_EQ(bytes(*late), (std::vector<int>{1, 2, 0}));
  session.reset();
  EXPECT_EQ(get(*grandchild), (Floats{6, 7})) << "outlives its parent";
  ASSERT_EQ(forked->reset(), Error::Ok);
  EXPECT_EQ(get(*forked), (Floats{5, 6}));
  EXPECT_EQ(bytes(*forked), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(get(*late), (Floats{16, 17}));
}

TEST_P(ForkTest, PrivateMemoryOfMethodsStartsAgain) {
  CounterOptions options;
  options.has_arenas = false;
  const LoadedProgram program(counter_program(options), options);
  const auto session = program.session();
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
  const auto forked = fork_of(*session);
  EXPECT_EQ(forked->loaded_method("bump"), nullptr);
  EXPECT_EQ(bump(*forked, 1), (Floats{6, 7}));
}

TEST_P(ForkTest, OwnsWhatWasBorrowed) {
  const LoadedProgram program;
  const size_t size = program.get()->table().arena(0).size;
  alignas(64) uint8_t memory[256];
  ASSERT_LE(size, sizeof(memory));
  const BorrowedArena borrowed[] = {{"state", {memory, size}}};
  SessionOptions options;
  options.borrowed = {borrowed, 1};
  auto session = program.session(options);
  bump(*session, 1);
  const auto snapshot = session->snapshot();
  const auto forked = fork_of(*session);
  bump(*session, 1);
  session.reset();
  std::fill(std::begin(memory), std::end(memory), 0xff);
  EXPECT_EQ(get(*forked), (Floats{6, 7}));
  session = program.session(options);
  ASSERT_EQ(session->restore(*snapshot), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{6, 7}));
  EXPECT_EQ(session->arena("state")->data(), memory);
}

TEST_P(ForkTest, IsIndependentInAChildProcess) {
  const LoadedProgram program(three_arenas());
  const auto session = program.session();
  uint8_t* const more = session->slot("more", "k")->data();
  more[5] = 1;
  const auto forked = fork_of(*session);
  const pid_t child = ::fork();
  if (child == 0) {
    bump(*session, 1);
    bump(*forked, 2);
    more[5] = 2;
    const auto again = fork_of(*session);
    const bool is_right = get(*again) == Floats{6, 7} &&
                          get(*forked) == Floats{7, 8} &&
                          again->slot("more", "k")->data()[5] == 2 &&
                          forked->slot("more", "k")->data()[5] == 1;
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  EXPECT_EQ(get(*forked), (Floats{5, 6}));
  EXPECT_EQ(more[5], 1);
}

TEST_P(ForkTest, OfADeviceCopiesThroughTheHost) {
  ASSERT_EQ(GuardedDevice::get().num_blocks(), 0U);
  {
    const LoadedProgram program(device_program());
    const auto session = program.session();
    const auto state = [](Session& of) {
      Floats n(2);
      EXPECT_EQ(
          of.copy_out("state", "n", {reinterpret_cast<uint8_t*>(n.data()), 8}),
          Error::Ok);
      return n;
    };
    bump(*session, 1);
    const auto snapshot = session->snapshot();
    ASSERT_TRUE(snapshot.ok());
    const auto forked = fork_of(*session);
    bump(*session, 10);
    EXPECT_EQ(state(*session), (Floats{16, 17}));
    EXPECT_EQ(state(*forked), (Floats{6, 7}));
    bump(*forked, 1);
    EXPECT_EQ(state(*forked), (Floats{7, 8}));
    EXPECT_EQ(state(*session), (Floats{16, 17}));
    ASSERT_EQ(session->restore(*snapshot), Error::Ok);
    EXPECT_EQ(state(*session), (Floats{6, 7}));
    EXPECT_EQ(get(*session), (Floats{6, 7}));
  }
  EXPECT_EQ(GuardedDevice::get().num_blocks(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Ways, ForkTest, ::testing::Values(false, true),
                         [](const auto& info) {
                           return info.param ? "CopyOnWrite" : "AtOnce";
                         });

}  // namespace

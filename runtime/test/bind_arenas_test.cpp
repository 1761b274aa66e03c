#include <executorch/extension/arenas/bind_arenas.h>
#include <gtest/gtest.h>

#include "program_builder.h"

using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::bind_arenas;
using executorch::runtime::Error;
using executorch::runtime::Span;
using pte_arenas::test::counter_program;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;

namespace {

class BindArenasTest : public ::testing::Test {
 protected:
  FileBytes file_ = file_of(counter_program());
  ArenaTable table_ =
      *ArenaTable::parse({file_.data(), file_.size()}, file_.size());
  alignas(64) uint8_t activations_[64];
  alignas(64) uint8_t arena_[128];
  Span<uint8_t> planned_[2] = {{activations_, 64}, {}};
  Span<uint8_t> arenas_[1] = {{arena_, 128}};

  Error bind(const char* method = "bump") {
    return bind_arenas(table_, method, {planned_, 2},
                       Span<const Span<uint8_t>>(arenas_, 1));
  }
};

TEST_F(BindArenasTest, PutsTheArenaInPlaceOfTheMemoryId) {
  ASSERT_EQ(bind(), Error::Ok);
  EXPECT_EQ(planned_[0].data(), activations_);
  EXPECT_EQ(planned_[1].data(), arena_);
  EXPECT_EQ(planned_[1].size(), 96U) << "as declared, not as the caller has it";
}

TEST_F(BindArenasTest, LeavesNoPrivateMemoryInPlaceOfAnArena) {
  uint8_t mine[96];
  planned_[1] = {mine, 96};
  ASSERT_EQ(bind("get"), Error::Ok);
  EXPECT_EQ(planned_[1].data(), arena_);
}

TEST_F(BindArenasTest, RefusesTooLittlePrivateMemory) {
  planned_[0] = {activations_, 63};
  EXPECT_EQ(bind(), Error::InvalidArgument);
}

TEST_F(BindArenasTest, RefusesASmallArena) {
  arenas_[0] = {arena_, 95};
  EXPECT_EQ(bind(), Error::InvalidArgument);
}

TEST_F(BindArenasTest, RefusesAnUnalignedArena) {
  arenas_[0] = {arena_ + 16, 96};
  EXPECT_EQ(bind(), Error::InvalidArgument);
}

TEST_F(BindArenasTest, RefusesAnotherNumberOfSpans) {
  EXPECT_EQ(bind_arenas(table_, "bump", {planned_, 1},
                        Span<const Span<uint8_t>>(arenas_, 1)),
            Error::InvalidArgument);
  EXPECT_EQ(bind_arenas(table_, "bump", {planned_, 2}, {}),
            Error::InvalidArgument);
}

TEST_F(BindArenasTest, RefusesAnUnknownMethod) {
  EXPECT_EQ(bind("bumps"), Error::NotFound);
}

}  // namespace

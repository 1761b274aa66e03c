#include <executorch/extension/arenas/session.h>
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "counter_calls.h"
#include "program_builder.h"

using executorch::extension::BufferDataLoader;
using executorch::extension::arenas::ArenaProgram;
using executorch::extension::arenas::Finding;
using executorch::extension::arenas::LoadedMethod;
using executorch::extension::arenas::LoadMode;
using executorch::extension::arenas::LoadOptions;
using executorch::extension::arenas::Session;
using executorch::runtime::DataLoader;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;
using pte_arenas::test::bump;
using pte_arenas::test::counter_program;
using pte_arenas::test::CounterOptions;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;
using pte_arenas::test::Floats;
using pte_arenas::test::floats_of;
using pte_arenas::test::get;
using pte_arenas::test::LoadedProgram;

namespace {

std::unique_ptr<Session> session_of(
    const std::shared_ptr<const ArenaProgram>& program) {
  auto session = Session::create(program);
  EXPECT_TRUE(session.ok());
  return std::move(*session);
}

/// A counter program in memory, with sessions over it.
class Counter final {
 public:
  explicit Counter(const CounterOptions& options = {})
      : program_(counter_program(options), options) {}

  std::unique_ptr<Session> session() const { return program_.session(); }

 private:
  const LoadedProgram program_;
};

TEST(SessionTest, MethodsShareState) {
  const Counter counter;
  const auto session = counter.session();
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
  EXPECT_EQ(get(*session), (Floats{6, 7}));
}

TEST(SessionTest, LoadingAfterAWriteKeepsState) {
  const Counter counter;
  const auto session = counter.session();
  bump(*session, 1);
  ASSERT_EQ(session->loaded_method("get"), nullptr);
  EXPECT_EQ(get(*session), (Floats{6, 7}));
}

TEST(SessionTest, UnloadingAndReloadingKeepsState) {
  const Counter counter;
  const auto session = counter.session();
  for (float i = 1; i < 4; ++i) {
    EXPECT_EQ(bump(*session, 1), (Floats{5 + i, 6 + i}));
    ASSERT_EQ(session->unload_method("bump"), Error::Ok);
    EXPECT_EQ(session->loaded_method("bump"), nullptr);
  }
  EXPECT_EQ(session->num_unloads(), 3U);
}

TEST(SessionTest, SessionsAreIndependent) {
  const Counter counter;
  const auto first = counter.session();
  const auto second = counter.session();
  bump(*first, 1);
  EXPECT_EQ(get(*second), (Floats{5, 6}));
  bump(*second, 10);
  EXPECT_EQ(get(*first), (Floats{6, 7}));
}

TEST(SessionTest, LoadingIsIdempotent) {
  const Counter counter;
  const auto session = counter.session();
  const auto first = session->load_method("bump");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*session->load_method("bump"), *first);
  EXPECT_EQ(session->unload_method("get"), Error::Ok) << "was not loaded";
  EXPECT_EQ(session->num_unloads(), 0U);
}

TEST(SessionTest, ResetsAllOrAnArenaOrASlot) {
  const Counter counter;
  const auto session = counter.session();
  const Span<uint8_t> other = *session->slot("state", "m");
  const auto disturb = [&] {
    bump(*session, 1);
    other[0] = 1;
  };
  disturb();
  ASSERT_EQ(session->reset(), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  EXPECT_EQ(other[0], 0);
  disturb();
  ASSERT_EQ(session->reset("state"), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  EXPECT_EQ(other[0], 0);
  disturb();
  ASSERT_EQ(session->reset("state", "n"), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  EXPECT_EQ(other[0], 1);
  ASSERT_EQ(session->reset("state", "m"), Error::Ok);
  EXPECT_EQ(other[0], 0);
}

TEST(SessionTest, SlotsAreTheStateItself) {
  const Counter counter;
  const auto session = counter.session();
  const Span<uint8_t> slot = *session->slot("state", "n");
  ASSERT_EQ(slot.size(), 8U);
  EXPECT_EQ(slot.data(), session->arena("state")->data());
  const float value = 40;
  std::memcpy(slot.data(), &value, sizeof(value));
  EXPECT_EQ(bump(*session, 2), (Floats{42, 8}));
}

TEST(SessionTest, ZerosNeedNoInitialValue) {
  CounterOptions options;
  options.initial = {0, 0};
  const Counter counter(options);
  const auto session = counter.session();
  EXPECT_EQ(bump(*session, 1), (Floats{1, 1}));
  ASSERT_EQ(session->reset(), Error::Ok);
  EXPECT_EQ(get(*session), (Floats{0, 0}));
}

TEST(SessionTest, LoadingDoesNotWriteInitialValuesOfOptionalArenas) {
  CounterOptions options;
  options.require_arenas = false;
  const Counter counter(options);
  const auto session = counter.session();
  bump(*session, 1);
  EXPECT_EQ(get(*session), (Floats{6, 7})) << "loaded after the write";
  ASSERT_EQ(session->unload_method("bump"), Error::Ok);
  EXPECT_EQ(bump(*session, 1), (Floats{7, 8})) << "loaded again";
  const auto other = counter.session();
  EXPECT_EQ(get(*other), (Floats{5, 6}));
  EXPECT_EQ(get(*session), (Floats{7, 8}));
}

TEST(SessionTest, WithoutArenasMethodsHavePrivateMemory) {
  CounterOptions options;
  options.has_arenas = false;
  const Counter counter(options);
  const auto session = counter.session();
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
  EXPECT_EQ(bump(*session, 1), (Floats{7, 8}));
  EXPECT_EQ(get(*session), (Floats{5, 6}));
  ASSERT_EQ(session->unload_method("bump"), Error::Ok);
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7})) << "private memory starts again";
}

TEST(SessionTest, RefusesToGuessWhetherMethodsShareMemory) {
  CounterOptions options;
  options.has_arenas = false;
  FileBytes file = file_of(counter_program(options), options);
  Finding finding;
  EXPECT_EQ(ArenaProgram::load(file.data(), file.size(), &finding).error(),
            Error::InvalidArgument);
  EXPECT_STREQ(finding.path, "is_unshared");
  EXPECT_STREQ(finding.message,
               "expected to be told whether the methods share memory, since "
               "all of them plan 16 bytes of memory id 2 and the program has "
               "no arenas");
}

TEST(SessionTest, RefusesWhatItDoesNotKnow) {
  const Counter counter;
  const auto session = counter.session();
  EXPECT_EQ(session->load_method("bumps").error(), Error::NotFound);
  EXPECT_EQ(session->unload_method("bumps"), Error::NotFound);
  EXPECT_EQ(session->execute("bumps", {}).error(), Error::NotFound);
  EXPECT_EQ(session->reset("states"), Error::NotFound);
  EXPECT_EQ(session->reset("state", "o"), Error::NotFound);
  EXPECT_EQ(session->slot("state", "o").error(), Error::NotFound);
}

TEST(SessionTest, RefusesAnotherSessionsMethod) {
  const Counter counter;
  const auto session = counter.session();
  const auto other = counter.session();
  const Result<LoadedMethod*> method = other->load_method("get");
  ASSERT_TRUE(method.ok());
  std::array<EValue, 1> outputs;
  EXPECT_EQ(session->execute(**method, {}, {outputs.data(), 1}),
            Error::InvalidArgument);
  EXPECT_EQ(Session::create(nullptr).error(), Error::InvalidArgument);
}

TEST(SessionTest, RefusesAnotherNumberOfInputs) {
  const Counter counter;
  const auto session = counter.session();
  EXPECT_EQ(session->execute("bump", {}).error(), Error::InvalidArgument);
  EXPECT_EQ(get(*session), (Floats{5, 6}));
}

TEST(SessionTest, RefusesOverlappingUse) {
  const Counter counter;
  const auto session = counter.session();
  const auto method = session->load_method("get");
  ASSERT_TRUE(method.ok());
  EValue output;
  {
    const auto use = session->use();
    ASSERT_TRUE(use.ok());
    EXPECT_FALSE(session->use().ok());
    EXPECT_EQ(session->load_method("bump").error(), Error::InvalidState);
    EXPECT_EQ(session->unload_method("get"), Error::InvalidState);
    EXPECT_EQ(session->execute("get", {}).error(), Error::InvalidState);
    EXPECT_EQ(session->execute(**method, {}, Span<EValue>(&output, 1)),
              Error::InvalidState);
    EXPECT_EQ(session->reset(), Error::InvalidState);
    EXPECT_EQ(session->reset("state"), Error::InvalidState);
    EXPECT_EQ(session->reset("state", "n"), Error::InvalidState);
  }
  EXPECT_EQ(session->execute(**method, {}, Span<EValue>(&output, 1)),
            Error::Ok);
  EXPECT_EQ(floats_of(output), (Floats{5, 6}));
}

TEST(SessionTest, AProgramLivesAsLongAsItsSessions) {
  FileBytes file = file_of(counter_program());
  std::unique_ptr<Session> session;
  {
    auto program = ArenaProgram::load(file.data(), file.size());
    ASSERT_TRUE(program.ok());
    session = session_of(*program);
  }
  EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
}

/// A file of which initial values cannot be read.
class NoInitialValues final : public DataLoader {
 public:
  explicit NoInitialValues(FileBytes& file)
      : loader_(file.data(), file.size()) {}

  Result<FreeableBuffer> load(size_t offset, size_t size,
                              const SegmentInfo& info) const override {
    return loader_.load(offset, size, info);
  }
  Error load_into(size_t, size_t, const SegmentInfo&, void*) const override {
    return Error::AccessFailed;
  }
  Result<size_t> size() const override { return loader_.size(); }

 private:
  BufferDataLoader loader_;
};

TEST(SessionTest, NamesAnInitialValueThatCannotBeRead) {
  FileBytes file = file_of(counter_program());
  const auto program =
      ArenaProgram::load(std::make_unique<NoInitialValues>(file));
  ASSERT_TRUE(program.ok());
  const auto value = (*program)->table().initial_value(0, 0);
  ASSERT_TRUE(value.has_value());
  Finding finding;
  EXPECT_EQ(Session::create(*program, {}, &finding).error(),
            Error::AccessFailed);
  EXPECT_STREQ(finding.path, "arenas[0].slots[0].data_buffer_idx");
  EXPECT_EQ(finding.message,
            "expected an initial value in bytes [" +
                std::to_string(value->file_offset) + ", " +
                std::to_string(value->file_offset + 8) +
                ") of the file but reading found Error::AccessFailed");
}

TEST(SessionTest, TellsWhatExecuTorchRefuses) {
  auto program = counter_program();
  program.execution_plan[0]->values[1]->val.AsTensor()->sizes = {-2};
  FileBytes file = file_of(program);
  Finding finding;
  EXPECT_EQ(ArenaProgram::load(file.data(), file.size(), &finding).error(),
            Error::InvalidProgram);
  EXPECT_STREQ(finding.path, "program");
  EXPECT_STREQ(finding.message,
               "expected a program that ExecuTorch accepts but it found "
               "Error::InvalidProgram");
}

/// Alone in its folder: tests may run at the same time.
class FromFileTest : public ::testing::TestWithParam<LoadMode> {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { rmdir(folder_.c_str()); }

  static LoadOptions options() {
    LoadOptions options;
    options.mode = GetParam();
    return options;
  }

  std::string folder_ = ::testing::TempDir() + "arenas_XXXXXX";
};

TEST_P(FromFileTest, LoadsAndRefuses) {
  const std::string path = folder_ + "/counter.pte";
  FileBytes file = file_of(counter_program());
  const auto write = [&](size_t size) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()),
               static_cast<std::streamsize>(size));
  };
  write(file.size());
  {
    const auto program = ArenaProgram::load(path.c_str(), nullptr, options());
    ASSERT_TRUE(program.ok());
    const auto session = session_of(*program);
    EXPECT_EQ(bump(*session, 1), (Floats{6, 7}));
    ASSERT_EQ(session->reset(), Error::Ok);
    EXPECT_EQ(get(*session), (Floats{5, 6}));
  }
  for (const size_t size : {size_t{0}, size_t{63}, file.size() - 1}) {
    write(size);
    Finding finding;
    EXPECT_EQ(ArenaProgram::load(path.c_str(), &finding, options()).error(),
              Error::InvalidProgram);
    EXPECT_STREQ(finding.path, "program") << size;
  }
  std::remove(path.c_str());
  Finding finding;
  EXPECT_EQ(ArenaProgram::load(path.c_str(), &finding, options()).error(),
            Error::AccessFailed);
  EXPECT_STREQ(finding.path, "file");
  EXPECT_STREQ(finding.message,
               "expected a file that can be read but found "
               "Error::AccessFailed");
}

INSTANTIATE_TEST_SUITE_P(Modes, FromFileTest,
                         ::testing::Values(LoadMode::Mmap,
                                           LoadMode::MmapUseMlock,
                                           LoadMode::MmapUseMlockIgnoreErrors,
                                           LoadMode::MmapUseMadvise,
                                           LoadMode::File));

}  // namespace

#include <executorch/extension/arenas/arena_program.h>
#include <executorch/extension/arenas/session.h>
#include <executorch/extension/tensor/tensor.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "program_builder.h"

using executorch::extension::make_tensor_ptr;
using executorch::extension::arenas::ArenaProgram;
using executorch::extension::arenas::Session;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using pte_arenas::test::counter_program;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;

namespace {

using Program = std::shared_ptr<const ArenaProgram>;

/// Runs a method and gives the first element of the state that it returns.
float run(Session& session, const std::string& method,
          const std::vector<EValue>& inputs = {}) {
  const auto outputs = session.execute(method, {inputs.data(), inputs.size()});
  return outputs.ok() ? outputs->at(0).toTensor().const_data_ptr<float>()[0]
                      : -1;
}

/// A life of a session, on its own thread; counts what is not as it should be.
void live(const Program& program, int rounds, int* faults) {
  const auto session = Session::create(program);
  if (!session.ok()) {
    ++*faults;
    return;
  }
  const auto step = make_tensor_ptr({2}, std::vector<float>{1, 1});
  for (int round = 0; round < rounds; ++round) {
    *faults += run(**session, "get") != 5;
    for (int i = 1; i <= 20; ++i) {
      *faults += run(**session, "bump", {EValue(*step)}) != 5 + i;
    }
    *faults += (*session)->unload_method("bump") != Error::Ok;
    *faults += run(**session, "get") != 25;
    *faults += (*session)->reset() != Error::Ok;
  }
}

// ThreadSanitizer watches it in `make cpp-threads`.
TEST(ParallelSessionsTest, AreIndependent) {
  FileBytes file = file_of(counter_program());
  const auto program = ArenaProgram::load(file.data(), file.size());
  ASSERT_TRUE(program.ok());
  constexpr int kThreads = 8;
  constexpr int kSessions = 8;
  constexpr int kRounds = 3;
  std::vector<int> faults(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&program, fault = &faults[t]] {
      for (int s = 0; s < kSessions; ++s) {
        live(*program, kRounds, fault);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(faults, std::vector<int>(kThreads));
}

// One session at a time has the right to itself; the others are told so.
TEST(ParallelSessionsTest, OverlapOnOneSessionIsRefused) {
  FileBytes file = file_of(counter_program());
  const auto program = ArenaProgram::load(file.data(), file.size());
  ASSERT_TRUE(program.ok());
  const auto session = Session::create(*program);
  ASSERT_TRUE(session.ok());
  std::vector<int> strange(8);
  std::vector<std::thread> threads;
  for (auto& count : strange) {
    threads.emplace_back([&session, &count] {
      for (int i = 0; i < 100; ++i) {
        const Error error = (*session)->reset();
        count += error != Error::Ok && error != Error::InvalidState;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(strange, std::vector<int>(8));
  EXPECT_EQ(run(**session, "get"), 5);
}

}  // namespace

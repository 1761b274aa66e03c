#include <executorch/extension/arenas/session.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

/**
 * @file
 * What the documents show in C++, as it stands; see snippets.py. Each block has
 * what the text around it says, and the program of its Python neighbour.
 */

using executorch::runtime::EValue;

namespace {

/// The count of a session, which is a scalar of 8 bytes.
int64_t count_of(executorch::extension::arenas::Session& session) {
  int64_t count = -1;
  const executorch::runtime::Span<uint8_t> bytes(
      reinterpret_cast<uint8_t*>(&count), sizeof(count));
  EXPECT_EQ(session.copy_out("state", "count", bytes),
            executorch::runtime::Error::Ok);
  return count;
}

TEST(DocumentsTest, ReadmeOfTheRuntime) {
  int64_t step = 3;
  executorch::aten::TensorImpl tensor(executorch::aten::ScalarType::Long, 0,
                                      nullptr, &step, nullptr);
  const EValue inputs[] = {EValue(executorch::aten::Tensor(&tensor))};
#include "README_0.inc"
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ((*outputs)[0].toTensor().const_data_ptr<int64_t>()[0], 5 + 3);
  EXPECT_EQ(count_of(**session), 5);  // as it began
}

TEST(DocumentsTest, BorrowedMemory) {
  namespace arenas = executorch::extension::arenas;
  arenas::Finding finding;
  const auto loaded = arenas::ArenaProgram::load("counter.pte", &finding);
  ASSERT_TRUE(loaded.ok());
  const auto& program = *loaded;
  alignas(64) uint8_t memory[64] = {7};
  const size_t size = sizeof(memory);
#include "memory_0.inc"
  ASSERT_TRUE(session.ok()) << finding.path << ": " << finding.message;
  EXPECT_EQ(count_of(**session), 7);  // what was there
}

TEST(DocumentsTest, CopyingSlots) {
  namespace arenas = executorch::extension::arenas;
  const auto program = arenas::ArenaProgram::load("counter.pte");
  ASSERT_TRUE(program.ok());
  auto created = arenas::Session::create(*program);
  ASSERT_TRUE(created.ok());
  const auto& session = *created;
  int64_t count = 5;
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(&count);
  const size_t nbytes = sizeof(count);
  ASSERT_EQ(session->copy_in("state", "count", {bytes, nbytes}),
            executorch::runtime::Error::Ok);
  count = 0;
#include "memory_1.inc"
  EXPECT_EQ(count, 5);
}

}  // namespace

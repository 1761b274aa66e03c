#include <executorch/extension/arenas/arena_pool.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "program_builder.h"

using executorch::extension::arenas::ArenaPool;
using executorch::extension::arenas::ArenaTable;
using executorch::extension::arenas::Finding;
using executorch::runtime::Error;
using pte_arenas::test::counter_program;
using pte_arenas::test::file_of;
using pte_arenas::test::FileBytes;

namespace {

ArenaTable table_of(FileBytes& file) {
  return *ArenaTable::parse({file.data(), file.size()}, file.size());
}

FileBytes file_with_two_arenas() {
  auto program = counter_program();
  auto& arenas = program.program_arenas->arenas;
  arenas.push_back(std::make_unique<pte_arenas::wire::ProgramArenaT>());
  arenas[1]->name = "large";
  arenas[1]->size = (uint64_t{1} << 32) + 1;
  arenas[1]->alignment = 1U << 16;
  return file_of(program);
}

TEST(ArenaPoolTest, HasOneSpanPerArena) {
  FileBytes file = file_with_two_arenas();
  const ArenaTable table = table_of(file);
  const auto pool = ArenaPool::create(table);
  ASSERT_TRUE(pool.ok());
  ASSERT_EQ(pool->spans().size(), 2U);
  for (size_t a = 0; a < 2; ++a) {
    const auto span = pool->spans()[a];
    EXPECT_EQ(span.size(), table.arena(a).size);
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(span.data()) % table.arena(a).alignment,
        0U);
  }
  // Beyond 32 bits, and only the touched page becomes resident.
  pool->spans()[1][uint64_t{1} << 32] = 1;
}

TEST(ArenaPoolTest, KnowsItsAddresses) {
  FileBytes file = file_with_two_arenas();
  const auto pool = ArenaPool::create(table_of(file));
  ASSERT_TRUE(pool.ok());
  const auto span = pool->spans()[1];
  EXPECT_TRUE(pool->contains(span.data()));
  EXPECT_TRUE(pool->contains(span.data() + span.size() - 1));
  EXPECT_FALSE(pool->contains(span.data() + span.size()));
  EXPECT_FALSE(pool->contains(nullptr));
  EXPECT_FALSE(pool->contains(&file));
}

TEST(ArenaPoolTest, CanBeReadBehindAnArenaOfWholePages) {
  auto program = counter_program();
  auto& arenas = program.program_arenas->arenas;
  for (const uint64_t pages : {1, 64}) {
    arenas.push_back(std::make_unique<pte_arenas::wire::ProgramArenaT>());
    arenas.back()->name = std::to_string(pages);
    arenas.back()->size = 4096 * pages;
    arenas.back()->alignment = 4096;
  }
  FileBytes file = file_of(program);
  const auto pool = ArenaPool::create(table_of(file));
  ASSERT_TRUE(pool.ok());
  for (const auto& span : pool->spans()) {
    const volatile uint8_t* const end = span.data() + span.size();
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(end[i], 0);
    }
  }
}

TEST(ArenaPoolTest, NamesAnArenaThatIsTooLarge) {
  auto program = counter_program();
  auto& arena = *program.program_arenas->arenas[0];
  for (const uint64_t size :
       {uint64_t{SIZE_MAX} - 64, uint64_t{SIZE_MAX} / 2}) {
    arena.size = size;
    FileBytes file = file_of(program);
    Finding finding;
    EXPECT_EQ(ArenaPool::create(table_of(file), {}, &finding).error(),
              Error::MemoryAllocationFailed);
    EXPECT_STREQ(finding.path, "arenas[0].size");
    EXPECT_EQ(finding.message, "expected memory for " + std::to_string(size) +
                                   " bytes of arena 'state' but found none");
  }
}

TEST(ArenaPoolTest, RefusesDevices) {
  auto program = counter_program();
  program.program_arenas->arenas[0]->device_type =
      pte_arenas::wire::DeviceType::CUDA;
  for (auto& plan : program.execution_plan) {
    plan->non_const_buffer_device.push_back(
        std::make_unique<pte_arenas::wire::NonConstBufferDeviceT>());
    plan->non_const_buffer_device[0]->buffer_idx = 2;
    plan->non_const_buffer_device[0]->device_type =
        pte_arenas::wire::DeviceType::CUDA;
  }
  FileBytes file = file_of(program);
  Finding finding;
  EXPECT_EQ(ArenaPool::create(table_of(file), {}, &finding).error(),
            Error::NotSupported);
  EXPECT_STREQ(finding.path, "arenas[0].device_type");
  EXPECT_STREQ(finding.message,
               "expected a device allocator for arena 'state' on cuda:0 but "
               "found none: link the backend that registers one");
  EXPECT_EQ(ArenaPool::create(table_of(file)).error(), Error::NotSupported);
}

}  // namespace

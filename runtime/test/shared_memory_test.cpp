// Blocks that take their bytes from other blocks, at once or when they write.

#include <executorch/extension/arenas/zeroed_memory.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "touched_pages.h"

using executorch::extension::arenas::ZeroedMemory;
using executorch::extension::arenas::internal::bytes_in;
using executorch::extension::arenas::internal::written_pages;
using executorch::runtime::Span;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

ZeroedMemory block(size_t size, size_t alignment = 64) {
  auto memory = ZeroedMemory::allocate(size, alignment);
  EXPECT_TRUE(memory.ok());
  return std::move(*memory);
}

std::string bytes_of(const ZeroedMemory& memory) {
  const Span<uint8_t> span = memory.span();
  return std::string(span.begin(), span.end());
}

/// How many bytes of a block take memory of its own.
size_t resident(const ZeroedMemory& memory) {
  const auto pages = written_pages(memory.span().data(), memory.span().size());
  EXPECT_TRUE(pages.has_value());
  return bytes_in(*pages);
}

using Sizes = std::pair<size_t, size_t>;

class SharedMemoryTest : public ::testing::TestWithParam<Sizes> {
 protected:
  ZeroedMemory make() { return block(GetParam().first, GetParam().second); }
  size_t size() { return GetParam().first; }
};

TEST_P(SharedMemoryTest, AssignCopiesAndClearsWhatWasThere) {
  ZeroedMemory from = make();
  ZeroedMemory to = make();
  std::memset(to.span().data(), 7, size());
  from.span()[size() - 1] = 3;
  to.assign(from);
  EXPECT_EQ(bytes_of(to), bytes_of(from));
  from.span()[0] = 9;
  EXPECT_EQ(to.span()[0], size() == 1 ? 3 : 0);
}

TEST_P(SharedMemoryTest, ShareGivesIndependentBlocks) {
  ZeroedMemory from = make();
  uint8_t* const address = from.span().data();
  std::memset(address, 1, size());
  ZeroedMemory first = make();
  from.share_with(&first);
  const std::string ones(size(), '\1');
  EXPECT_EQ(from.span().data(), address);
  EXPECT_EQ(bytes_of(from), ones);
  EXPECT_EQ(bytes_of(first), ones);

  from.span()[size() - 1] = 2;
  ZeroedMemory second = make();
  from.share_with(&second);
  first.span()[size() / 2] = 3;
  ZeroedMemory third = make();
  first.share_with(&third);
  const auto changed = [&](size_t at, char to) {
    std::string bytes = ones;
    bytes[at] = to;
    return bytes;
  };
  EXPECT_EQ(bytes_of(from), changed(size() - 1, 2));
  EXPECT_EQ(bytes_of(second), changed(size() - 1, 2));
  EXPECT_EQ(bytes_of(first), changed(size() / 2, 3));
  EXPECT_EQ(bytes_of(third), changed(size() / 2, 3));
}

TEST_P(SharedMemoryTest, SharedBlocksBecomeZerosAgain) {
  ZeroedMemory from = make();
  std::memset(from.span().data(), 1, size());
  ZeroedMemory to = make();
  from.share_with(&to);
  to.zero(size() / 4, size() / 2);
  std::string bytes(size(), '\1');
  bytes.replace(size() / 4, size() / 2, size() / 2, '\0');
  EXPECT_EQ(bytes_of(to), bytes);
  ZeroedMemory copy = make();
  to.share_with(&copy);
  EXPECT_EQ(bytes_of(copy), bytes);
  to.zero(0, size());
  EXPECT_EQ(bytes_of(to), std::string(size(), '\0'));
  EXPECT_EQ(bytes_of(from), std::string(size(), '\1'));
  from.assign(copy);
  EXPECT_EQ(bytes_of(from), bytes);
}

TEST_P(SharedMemoryTest, SharedBlocksCanBeReadBehindTheirEnd) {
  ZeroedMemory from = make();
  ZeroedMemory to = make();
  from.span()[0] = 1;
  from.share_with(&to);
  for (const ZeroedMemory* memory : {&from, &to}) {
    const volatile uint8_t* const end = memory->span().end();
    for (size_t i = 0; i < ZeroedMemory::kReadableBehind; ++i) {
      EXPECT_EQ(end[i], 0);
    }
  }
}

TEST_P(SharedMemoryTest, MovingKeepsWhatIsShared) {
  ZeroedMemory from = make();
  from.span()[0] = 1;
  ZeroedMemory to = make();
  from.share_with(&to);
  ZeroedMemory moved = std::move(to);
  moved.zero(0, size());
  EXPECT_EQ(bytes_of(moved), std::string(size(), '\0'));
  from = std::move(moved);
  EXPECT_EQ(bytes_of(from), std::string(size(), '\0'));
}

INSTANTIATE_TEST_SUITE_P(Sizes, SharedMemoryTest,
                         ::testing::Values(Sizes{1, 1}, Sizes{100, 64},
                                           Sizes{65535, 64}, Sizes{65536, 64},
                                           Sizes{65537, 65536},
                                           Sizes{kMiB - 3, 4096},
                                           Sizes{9 * kMiB + 5, 2 * kMiB}));

TEST(SharedMemoryTest, ManyStepsKeepEveryBlockWhatItShouldBe) {
  constexpr size_t kSize = 40 * 4096 + 17;
  constexpr size_t kBlocks = 4;
  std::mt19937 random(1);
  std::vector<ZeroedMemory> blocks;
  std::vector<std::string> expected(kBlocks, std::string(kSize, '\0'));
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(block(kSize));
  }
  for (int step = 0; step < 2000; ++step) {
    const size_t a = random() % kBlocks;
    const size_t b = (a + 1 + random() % (kBlocks - 1)) % kBlocks;
    const size_t offset = random() % kSize;
    const size_t size =
        random() % 8 == 0 ? kSize - offset : random() % (kSize - offset) % 9000;
    const char value = static_cast<char>(random());
    switch (random() % 8) {
      case 0:
        blocks[a].zero(offset, size);
        expected[a].replace(offset, size, size, '\0');
        break;
      case 1:
        blocks[a].zero(0, kSize);
        expected[a].assign(kSize, '\0');
        break;
      case 2:
        blocks[a].assign(blocks[b]);
        expected[a] = expected[b];
        break;
      case 3:
        blocks[b].share_with(&blocks[a]);
        expected[a] = expected[b];
        break;
      default:
        std::memset(blocks[a].span().data() + offset, value, size);
        expected[a].replace(offset, size, size, value);
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      ASSERT_EQ(bytes_of(blocks[i]), expected[i]) << "step " << step;
    }
  }
}

#ifdef __linux__

TEST(SharedMemoryTest, CopiesOnlyPagesThatWereWritten) {
  ZeroedMemory from = block(64 * kMiB);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  from.span()[5 * kMiB] = 1;
  from.span()[50 * kMiB] = 1;
  const volatile uint8_t* const bytes = from.span().data();
  for (size_t at = 0; at < 64 * kMiB; at += page) {
    (void)bytes[at];
  }
  ZeroedMemory to = block(64 * kMiB);
  to.assign(from);
  EXPECT_EQ(resident(to), 2 * page);
  ZeroedMemory shared = block(64 * kMiB);
  from.share_with(&shared);
  EXPECT_EQ(resident(from), 0U);
  EXPECT_EQ(resident(shared), 0U);
  shared.span()[5 * kMiB] = 2;
  EXPECT_EQ(resident(shared), page);
  EXPECT_EQ(from.span()[5 * kMiB], 1);
}

TEST(SharedMemoryTest, AShareAfterManyWritesFreezesAgain) {
  ZeroedMemory from = block(4 * kMiB);
  std::memset(from.span().data(), 1, kMiB);
  ZeroedMemory to = block(4 * kMiB);
  from.share_with(&to);
  std::memset(from.span().data(), 2, kMiB / 2);
  ZeroedMemory copied = block(4 * kMiB);
  from.share_with(&copied);
  EXPECT_EQ(resident(copied), kMiB / 2) << "as much as was written since";
  std::memset(from.span().data(), 3, kMiB);
  ZeroedMemory shared = block(4 * kMiB);
  from.share_with(&shared);
  EXPECT_EQ(resident(shared), 0U);
  EXPECT_EQ(shared.span()[kMiB - 1], 3);
  EXPECT_EQ(copied.span()[kMiB / 2 - 1], 2);
  EXPECT_EQ(to.span()[0], 1);
}

TEST(SharedMemoryTest, IsIndependentInAChildOfFork) {
  ZeroedMemory from = block(kMiB);
  ZeroedMemory to = block(kMiB);
  from.span()[0] = 1;
  from.share_with(&to);
  const pid_t child = fork();
  if (child == 0) {
    from.span()[0] = 2;
    to.span()[1] = 3;
    ZeroedMemory again = block(kMiB);
    from.share_with(&again);
    _exit(again.span()[0] == 2 && to.span()[0] == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(from.span()[0], 1);
  EXPECT_EQ(to.span()[1], 0);
}

#endif

}  // namespace

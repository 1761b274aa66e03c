#include <executorch/extension/arenas/zeroed_memory.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

using executorch::extension::arenas::ZeroedMemory;
using executorch::runtime::Error;
using executorch::runtime::Span;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool is_zero(Span<uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

class ZeroedMemoryTest
    : public ::testing::TestWithParam<std::pair<size_t, size_t>> {};

TEST_P(ZeroedMemoryTest, IsAlignedAndZeroAndWritable) {
  const auto [size, alignment] = GetParam();
  auto memory = ZeroedMemory::allocate(size, alignment);
  ASSERT_TRUE(memory.ok());
  const Span<uint8_t> bytes = memory->span();
  ASSERT_NE(bytes.data(), nullptr);
  EXPECT_EQ(bytes.size(), size);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % alignment, 0U);
  EXPECT_TRUE(is_zero(bytes));
  std::fill(bytes.begin(), bytes.end(), 0xff);
  memory->zero(0, size);
  EXPECT_TRUE(is_zero(bytes));
}

TEST_P(ZeroedMemoryTest, CanBeReadBehindItsEnd) {
  const auto [size, alignment] = GetParam();
  auto memory = ZeroedMemory::allocate(size, alignment);
  ASSERT_TRUE(memory.ok());
  const volatile uint8_t* const end = memory->span().data() + size;
  for (size_t i = 0; i < ZeroedMemory::kReadableBehind; ++i) {
    EXPECT_EQ(end[i], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, ZeroedMemoryTest,
    ::testing::Values(std::pair<size_t, size_t>{0, 1},
                      std::pair<size_t, size_t>{1, 1},
                      std::pair<size_t, size_t>{3, 64},
                      std::pair<size_t, size_t>{100, 4096},
                      std::pair<size_t, size_t>{4096, 4096},
                      std::pair<size_t, size_t>{4096, 64},
                      std::pair<size_t, size_t>{65535, 64},
                      std::pair<size_t, size_t>{65536, 64},
                      std::pair<size_t, size_t>{65536, 65536},
                      std::pair<size_t, size_t>{kMiB + 1, 4096},
                      std::pair<size_t, size_t>{kMiB, 2 * kMiB}));

TEST(ZeroedMemoryTest, ZeroesARangeAndNoMore) {
  auto memory = ZeroedMemory::allocate(kMiB, 64);
  ASSERT_TRUE(memory.ok());
  const Span<uint8_t> bytes = memory->span();
  std::fill(bytes.begin(), bytes.end(), 0xff);
  constexpr size_t kBegin = 4095;
  constexpr size_t kSize = 500001;
  memory->zero(kBegin, kSize);
  EXPECT_EQ(bytes[kBegin - 1], 0xff);
  EXPECT_TRUE(is_zero({bytes.data() + kBegin, kSize}));
  EXPECT_EQ(bytes[kBegin + kSize], 0xff);
}

TEST(ZeroedMemoryTest, LargeBlocksAreNotTouched) {
  constexpr size_t kSize = sizeof(size_t) > 4 ? size_t{1} << 36 : kMiB;
  auto memory = ZeroedMemory::allocate(kSize, 64);
  ASSERT_TRUE(memory.ok());
  memory->span()[kSize - 1] = 1;
  EXPECT_EQ(memory->span()[kSize / 2], 0);
}

TEST(ZeroedMemoryTest, MovesAndOutlivesWhatItWasMovedFrom) {
  auto first = ZeroedMemory::allocate(kMiB, 64);
  auto second = ZeroedMemory::allocate(16, 64);
  ASSERT_TRUE(first.ok() && second.ok());
  uint8_t* const data = first->span().data();
  data[kMiB - 1] = 7;
  *second = std::move(*first);
  EXPECT_EQ(second->span().data(), data);
  EXPECT_EQ(second->span()[kMiB - 1], 7);
  EXPECT_EQ(first->span().size(), 0U);
}

TEST(ZeroedMemoryTest, RefusesWhatCannotBe) {
  EXPECT_EQ(ZeroedMemory::allocate(16, 0).error(), Error::InvalidArgument);
  EXPECT_EQ(ZeroedMemory::allocate(16, 12).error(), Error::InvalidArgument);
  constexpr size_t kAround = 64 + ZeroedMemory::kReadableBehind;
  EXPECT_EQ(ZeroedMemory::allocate(SIZE_MAX - kAround + 1, 64).error(),
            Error::InvalidArgument);
  EXPECT_EQ(ZeroedMemory::allocate(SIZE_MAX / 2, 64).error(),
            Error::MemoryAllocationFailed);
}

}  // namespace

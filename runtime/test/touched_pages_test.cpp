#include "touched_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

using executorch::extension::arenas::internal::ByteRange;
using executorch::extension::arenas::internal::ByteRanges;
using executorch::extension::arenas::internal::united;
using executorch::extension::arenas::internal::without;
using executorch::extension::arenas::internal::written_pages_by_entry;
using executorch::extension::arenas::internal::written_pages_by_scan;

namespace executorch {
namespace extension {
namespace arenas {
namespace internal {

void PrintTo(const ByteRange& range, std::ostream* out) {
  *out << "[" << range.offset << ", " << range.offset + range.size << ")";
}

}  // namespace internal
}  // namespace arenas
}  // namespace extension
}  // namespace executorch

namespace {

TEST(ByteRangesTest, Unite) {
  EXPECT_EQ(united({}, {}), ByteRanges());
  EXPECT_EQ(united({{0, 4}, {8, 4}}, {}), (ByteRanges{{0, 4}, {8, 4}}));
  EXPECT_EQ(united({{0, 4}}, {{4, 4}}), (ByteRanges{{0, 8}}));
  EXPECT_EQ(united({{0, 4}, {6, 1}}, {{2, 9}, {20, 1}}),
            (ByteRanges{{0, 11}, {20, 1}}));
  EXPECT_EQ(united({{0, 9}}, {{2, 3}}), (ByteRanges{{0, 9}}));
}

TEST(ByteRangesTest, Subtract) {
  EXPECT_EQ(without({}, {{0, 4}}), ByteRanges());
  EXPECT_EQ(without({{2, 4}}, {}), (ByteRanges{{2, 4}}));
  EXPECT_EQ(without({{2, 4}}, {{0, 9}}), ByteRanges());
  EXPECT_EQ(without({{0, 10}}, {{2, 1}, {5, 2}}),
            (ByteRanges{{0, 2}, {3, 2}, {7, 3}}));
  EXPECT_EQ(without({{0, 4}, {6, 4}, {12, 4}}, {{2, 6}, {13, 9}}),
            (ByteRanges{{0, 2}, {8, 2}, {12, 1}}));
  EXPECT_EQ(without({{0, 2}, {4, 2}}, {{2, 2}}), (ByteRanges{{0, 2}, {4, 2}}));
}

#ifdef __linux__

/// Sixteen pages, mapped privately.
class Pages final {
 public:
  static constexpr size_t kCount = 16;

  explicit Pages(int flags = MAP_ANONYMOUS, int file = -1)
      : address_(static_cast<uint8_t*>(mmap(nullptr, kCount * size(),
                                            PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | flags, file, 0))) {
    EXPECT_NE(address_, MAP_FAILED);
    madvise(address_, kCount * size(), MADV_NOHUGEPAGE);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(address_, kCount * size()); }

  static size_t size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

  volatile uint8_t& operator[](size_t page) { return address_[page * size()]; }

  const uint8_t* begin() const { return address_; }

 private:
  uint8_t* address_;
};

using Ask = std::optional<ByteRanges> (*)(const uint8_t*, size_t);

class WrittenPagesTest : public ::testing::TestWithParam<Ask> {
 protected:
  /// Numbers of pages, in place of bytes.
  ByteRanges written(const Pages& pages, size_t count = Pages::kCount) {
    auto ranges = GetParam()(pages.begin(), count * Pages::size());
    EXPECT_TRUE(ranges.has_value());
    for (ByteRange& range : *ranges) {
      EXPECT_EQ(range.offset % Pages::size(), 0U);
      range = {range.offset / Pages::size(), range.size / Pages::size()};
    }
    return *ranges;
  }

  void SetUp() override {
    if (GetParam() == written_pages_by_scan &&
        !GetParam()(Pages().begin(), Pages::size()).has_value()) {
      GTEST_SKIP() << "Linux before 6.7";
    }
  }
};

TEST_P(WrittenPagesTest, AreThoseThatWereWritten) {
  Pages pages;
  EXPECT_EQ(written(pages), ByteRanges());
  pages[1] = 1;
  pages[2] = 0;
  pages[9] = 1;
  EXPECT_EQ(written(pages), (ByteRanges{{1, 2}, {9, 1}}));
  EXPECT_EQ(written(pages, 2), (ByteRanges{{1, 1}}));
}

TEST_P(WrittenPagesTest, AreNotThoseThatWereOnlyRead) {
  Pages pages;
  pages[3] = 1;
  for (size_t i = 0; i < Pages::kCount; ++i) {
    EXPECT_EQ(pages[i], i == 3);
  }
  EXPECT_EQ(written(pages), (ByteRanges{{3, 1}}));
}

TEST_P(WrittenPagesTest, EndWithTheBlock) {
  Pages pages;
  pages[0] = 1;
  pages[1] = 1;
  const auto ranges = GetParam()(pages.begin(), Pages::size() + 5);
  EXPECT_EQ(*ranges, (ByteRanges{{0, Pages::size() + 5}}));
}

TEST_P(WrittenPagesTest, OfAFileAreItsCopies) {
  const int file = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, Pages::kCount * Pages::size()), 0);
  Pages pages(0, file);
  EXPECT_EQ(pages[4], 0);
  pages[7] = 1;
  EXPECT_EQ(written(pages), (ByteRanges{{7, 1}}));
  close(file);
}

TEST_P(WrittenPagesTest, AreSharedWithChildren) {
  Pages pages;
  pages[5] = 1;
  EXPECT_EQ(pages[6], 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_right = written(pages) == ByteRanges{{5, 1}};
    pages[6] = 1;
    _exit(is_right && written(pages) == ByteRanges{{5, 2}} ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(written(pages), (ByteRanges{{5, 1}}));
}

INSTANTIATE_TEST_SUITE_P(Ways, WrittenPagesTest,
                         ::testing::Values(written_pages_by_scan,
                                           written_pages_by_entry),
                         [](const auto& info) {
                           return info.index == 0 ? "Scan" : "Entries";
                         });

#endif

}  // namespace

#include "message.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

using executorch::extension::arenas::internal::Bytes;
using executorch::extension::arenas::internal::DeviceName;
using executorch::extension::arenas::internal::is_utf8;
using executorch::extension::arenas::internal::List;
using executorch::extension::arenas::internal::Message;
using executorch::extension::arenas::internal::Name;
using executorch::runtime::Span;

namespace {

template <typename Part>
std::string printed(Part part) {
  char buffer[1024];
  Message(buffer, sizeof(buffer)).put(part);
  return buffer;
}

std::string printed_list(const std::vector<int32_t>& items) {
  return printed(
      List<int32_t>{Span<const int32_t>(items.data(), items.size())});
}

TEST(MessageTest, PrintsNumbersUpToTheirLimits) {
  EXPECT_EQ(printed(uint64_t{0}), "0");
  EXPECT_EQ(printed(UINT64_MAX), "18446744073709551615");
  EXPECT_EQ(printed(INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(printed(int32_t{-7}), "-7");
}

TEST(MessageTest, EscapesNamesAsJsonDoes) {
  EXPECT_EQ(printed(Name{"a.b"}), "'a.b'");
  EXPECT_EQ(printed(Name{"\"\\\b\f\n\r\t"}), R"('\"\\\b\f\n\r\t')");
  EXPECT_EQ(printed(Name{std::string_view("\0\x1f\x7f", 3)}),
            R"('\u0000\u001f\u007f')");
  EXPECT_EQ(printed(Name{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"}),
            R"('\u00e9\u20ac\ud83d\ude00')");
}

TEST(MessageTest, ShortensLongNamesAndLists) {
  EXPECT_EQ(printed(Name{std::string(60, 'a')}),
            "'" + std::string(60, 'a') + "'");
  EXPECT_EQ(printed(Name{std::string(61, 'a')}),
            "'" + std::string(60, 'a') + "...'");
  EXPECT_EQ(printed_list({}), "[]");
  EXPECT_EQ(printed_list({2, -3}), "[2, -3]");
  EXPECT_EQ(printed_list(std::vector<int32_t>(17, 1)),
            "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...]");
}

TEST(MessageTest, PrintsRangesWithoutOverflow) {
  EXPECT_EQ(printed(Bytes{64, 32}), "[64, 96)");
  EXPECT_EQ(printed(Bytes{UINT64_MAX, 0}),
            "[18446744073709551615, 18446744073709551615)");
  EXPECT_EQ(printed(Bytes{UINT64_MAX, 1}),
            "[18446744073709551615, 2^64 or more)");
}

TEST(MessageTest, PrintsDevices) {
  EXPECT_EQ(printed(DeviceName{0, 0}), "cpu:0");
  EXPECT_EQ(printed(DeviceName{1, -1}), "cuda:-1");
  EXPECT_EQ(printed(DeviceName{7, 2}), "7:2");
}

TEST(MessageTest, DropsWhatDoesNotFit) {
  char buffer[4];
  Message message(buffer, sizeof(buffer));
  message.put("ab");
  message.put("cd");
  message.put("ef");
  EXPECT_STREQ(buffer, "abc");
}

TEST(MessageTest, TellsUtf8FromOtherBytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("\xf4\x8f\xbf\xbf"));  // the last code point
  for (const char* const text :
       {"\x80", "\xc1\x81", "\xc3", "\xc3(", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "a\xff"}) {
    EXPECT_FALSE(is_utf8(text)) << printed(text);
  }
}

}  // namespace

#include "lockstep/base/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::base {
namespace {

TEST(Text, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1 KiB");
  EXPECT_EQ(human_bytes(1610612736), "1.5 GiB");
  EXPECT_EQ(human_bytes(1024.0 * 1024 - 1), "1 MiB");
  EXPECT_EQ(human_bytes(-2048), "-2 KiB");
  EXPECT_EQ(human_bytes(std::pow(2.0, 63)), "8 EiB");
  EXPECT_EQ(human_bytes(INFINITY), "inf");
}

TEST(Text, HumanCount) {
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(12'300'000), "12.3 M");
  EXPECT_EQ(human_count(999'960), "1 M");
  EXPECT_EQ(human_count(1.5e9), "1.5 B");
}

TEST(Text, HumanDuration) {
  struct Row {
    double seconds;
    const char* text;
  };
  for (const Row& row : std::initializer_list<Row>{{0, "0 us"},
                                                   {850e-6, "850 us"},
                                                   {0.012, "12 ms"},
                                                   {0.9999, "1 s"},
                                                   {3.24, "3.2 s"},
                                                   {59.97, "1 m 00 s"},
                                                   {125, "2 m 05 s"},
                                                   {3599.6, "1 h 00 m"},
                                                   {11'220, "3 h 07 m"},
                                                   {86399, "1 d 00 h"},
                                                   {187'200, "2 d 04 h"},
                                                   {-3, "-3 s"}}) {
    EXPECT_EQ(human_duration(row.seconds), row.text) << row.seconds;
  }
}

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("layers", "layesr"), 1u);  // neighbours swapped
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
}

TEST(Text, NearestWord) {
  const std::vector<std::string> words = {"train", "generate", "explain"};
  EXPECT_EQ(nearest_word("trian", words), "train");
  EXPECT_EQ(nearest_word("explian", words), "explain");
  EXPECT_EQ(nearest_word("banana", words), "");
  EXPECT_EQ(nearest_word(std::string(100'000, 'x'), words), "");
}

TEST(Text, DivisorsNear) {
  struct Case {
    int64_t whole, wanted;
    const char* near;
  };
  for (const Case& c : std::vector<Case>{{12, 3, "1, 2, 3, 4, 6, 12"},
                                         {64, 48, "1, 2, 4, 8, 16, 32, 64"},
                                         {2, 8, "1, 2"},
                                         {1, 8, "1"},
                                         {97, 10, "1, 97"},
                                         {36, 5, "1, 2, 3, 4, 6, 9, 12, 18, 36"},
                                         {720, 7, "1, 4, 5, 6, 8, 9, 10, 12, 15, 16 and others"},
                                         {1'000'000'000, 1'000'000'000,
                                          "1, 40000000, 50000000, 62500000, 100000000, 125000000, 200000000, "
                                          "250000000, 500000000, 1000000000 and others"}}) {
    EXPECT_EQ(divisors_near(c.whole, c.wanted), c.near) << c.whole << " " << c.wanted;
  }
}

TEST(Text, QuotedIsSafeToPrint) {
  EXPECT_EQ(quoted("plain"), "\"plain\"");
  EXPECT_EQ(quoted("a\"b\\c\n\x1B[31m"), "\"a\\\"b\\\\c\\n\\u001B[31m\"");
  EXPECT_EQ(quoted("\xC2\x9B"
                   "2J\xC2\xA0"),
            "\"\\u009B2J\xC2\xA0\"")
      << "a terminal would obey it";
  EXPECT_EQ(quoted("\xE2\x82\xAC \xF0\x9F\x98\x80"), "\"\xE2\x82\xAC \xF0\x9F\x98\x80\"");
  for (const char* broken :
       {"\xFF", "\x9B", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    std::string bytes;
    for (const char* one = broken; *one; ++one)
      bytes += fmt::format("\\x{:02X}", static_cast<unsigned char>(*one));
    EXPECT_EQ(quoted(broken), "\"" + bytes + "\"");
  }
  EXPECT_EQ(quoted("abcdef", 3), "\"abc...\"");
  EXPECT_EQ(quoted("a\xC3\xA9x", 2), "\"a\xC3\xA9...\"");  // never half a character
}

TEST(Text, WidthCutWrap) {
  EXPECT_EQ(display_width("a\xC3\xA9\xE2\xA0\x81"), 3u);
  EXPECT_EQ(cut_to_width("a\xC3\xA9z", 2), "a\xC3\xA9");
  EXPECT_EQ(wrapped("one two  three", 8), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("abcdefghij k", 4), (std::vector<std::string>{"abcd", "efgh", "ij k"}));
  EXPECT_EQ(wrapped("", 4), std::vector<std::string>{""});
  for (const std::string& line : wrapped("some words of many lengths, extraordinarily so", 7)) {
    EXPECT_LE(display_width(line), 7u);
  }
}

TEST(Hanging, BreaksBetweenWordsAndIndentsWhatFollows) {
  EXPECT_EQ(hanging("memory  39.9 MiB (22.5 MiB kept)", 20, 8),
            "memory  39.9 MiB\n        (22.5 MiB\n        kept)");
  EXPECT_EQ(hanging("  two in: and more words", 14, 2), "  two in: and\n    more words");
  EXPECT_EQ(hanging("short\n\nlines", 20, 4), "short\n\nlines");
  EXPECT_EQ(hanging("a /path/that/is/longer/than/a/line b", 12, 2),
            "a\n  /path/that/is/longer/than/a/line\n  b");
  EXPECT_EQ(hanging("", 20, 4), "");
  for (size_t width : {20u, 40u, 80u}) {
    const std::string text =
        hanging("step 400: saved runs/first with words enough to fill several lines", width, 8);
    for (const std::string& line : split_lines(text)) EXPECT_LE(display_width(line), width);
  }
}

TEST(Text, Pieces) {
  EXPECT_EQ(trimmed(" \t a b \n"), "a b");
  EXPECT_EQ(trimmed("   "), "");
  EXPECT_EQ(split_lines("a\n\nb"), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split_lines("a\n"), (std::vector<std::string>{"a"}));
  EXPECT_EQ(join({"a", "b"}, ", "), "a, b");
}

}  // namespace
}  // namespace lockstep::base

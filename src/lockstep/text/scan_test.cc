// Each scanner against the pattern that it stands for, on random text.
#include "lockstep/text/scan.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/text/fault.h"
#include "lockstep/text/normalize.h"
#include "lockstep/text/pattern.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

std::string random_text(std::mt19937_64& source) {
  static const char* const kParts[] = {
      "a",      "B",    "the",  "'s",     "'LL", "'", " ", "  ", "\n", "\r\n",   "\t",
      "1",      "23",   "4567", ".",      "!?",  "/", "é", "É",  "ſ",  "中",     "文字",
      "カ",     "の",   "・",   "́",       "़",    "ǅ", "ʰ", "½",  "٣",  "\u00a0", "\u3000",
      "\u2028", "🙂", "\x01", "\u200d", "<|",  "_", "$", "Ⅳ",  "'ſ", "\u0378"};
  std::string text;
  const size_t count = source() % 24;
  for (size_t i = 0; i < count; ++i) {
    if (source() % 8 == 0) {
      uint32_t code = static_cast<uint32_t>(source() % (source() % 2 ? 0x3000 : 0x110000));
      if (code >= 0xD800 && code < 0xE000) code = 'x';
      append_char(text, code);
    } else {
      text += kParts[source() % std::size(kParts)];
    }
  }
  return text;
}

using Cuts = std::vector<size_t>;

Cuts by_scan(Scan scan, const std::string& text) {
  Cuts cuts;
  const char *begin = text.data(), *end = begin + text.size();
  for (const char* at = begin; at < end;) {
    const char* next = scan(Unicode::table(), at, end);
    EXPECT_GT(next, at);
    EXPECT_LE(next, end);
    if (next <= at || next > end) break;
    cuts.push_back(static_cast<size_t>(next - begin));
    at = next;
  }
  return cuts;
}

Cuts by_pattern(const Pattern& pattern, std::string_view text, size_t offset = 0) {
  Cuts cuts;
  size_t done = 0;
  pattern.each_match(text, [&](size_t begin, size_t end) {
    if (begin > done) cuts.push_back(offset + begin);
    cuts.push_back(offset + end);
    done = end;
  });
  if (done < text.size()) cuts.push_back(offset + text.size());
  return cuts;
}

TEST(Scan, CutsWhereThePatternDoes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 source(seed);
  for (const std::string_view pattern :
       {kGpt2Pattern, kLlama3Pattern, kQwenPattern, kQwen35Pattern, kCl100kPattern, kO200kPattern}) {
    const Scan scan = find_scan(pattern);
    ASSERT_NE(scan, nullptr);
    const Pattern engine(std::string(pattern), Engine::rust);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(source);
      ASSERT_EQ(by_scan(scan, text), by_pattern(engine, text))
          << pattern << " on " << testing::PrintToString(text);
    }
  }
}

TEST(Scan, DeepSeeksThreeSplitsAreOne) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 source(seed);
  const Pattern first(std::string(kDeepSeekPatterns[0]), Engine::oniguruma),
      second(std::string(kDeepSeekPatterns[1]), Engine::oniguruma),
      third(std::string(kDeepSeekPatterns[2]), Engine::oniguruma);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = random_text(source);
    Cuts cuts = by_pattern(first, text);
    for (const Pattern* pattern : {&second, &third}) {
      Cuts finer;
      size_t begin = 0;
      for (const size_t end : cuts) {
        const Cuts inner = by_pattern(*pattern, std::string_view(text).substr(begin, end - begin), begin);
        finer.insert(finer.end(), inner.begin(), inner.end());
        begin = end;
      }
      cuts = finer;
    }
    ASSERT_EQ(by_scan(deepseek_scan(), text), cuts) << testing::PrintToString(text);
  }
}

// What Split(Regex(...), "isolated") of `tokenizers` cuts: Ruby's marks, which PCRE2 reads otherwise.
TEST(Pattern, MeansWhatItsLibraryMeans) {
  struct Row {
    const char* pattern;
    std::vector<std::string_view> matches;  // of kText
  };
  constexpr std::string_view kText = "12345 abz\nfgA\x0b$+ e\u0301x \u4f60\u3042";
  for (const Row& row : std::initializer_list<Row>{
           {R"(\h+)", {"12345", "ab", "f", "A", "e"}},
           {R"(\v)", {"\x0b"}},
           {R"(z(?m).f)", {"z\nf"}},
           {R"(z.f)", {}},
           {R"([a[bz]]+)", {"abz"}},
           {R"([\p{L}&&[^a-f]]+)", {"z", "gA", "x", "\u4f60\u3042"}},
           {R"([^\p{L}&&[a-f]]+)", {"12345 ", "z\n", "gA\x0b$+ ", "\u0301x \u4f60\u3042"}},
           {R"([\p{L}&&[^\p{Han}]&&[^a-z]])", {"A", "\u3042"}},
           {R"(e\b|x\b)", {"x"}},  // a mark belongs to its word
           {R"([[:digit:]]+)", {"12345"}},
           {R"([[:^space:][:blank:]]+)", {"12345 abz", "fgA", "$+ e\u0301x \u4f60\u3042"}},
           {R"([[:punct:]]+)", {"$+"}},
       }) {
    const Pattern pattern(row.pattern, Engine::oniguruma);
    std::vector<std::string_view> matches;
    pattern.each_match(
        kText, [&](size_t begin, size_t end) { matches.push_back(kText.substr(begin, end - begin)); });
    EXPECT_EQ(matches, row.matches) << row.pattern;
  }
  for (const char* refused : {R"(\p{N}{1,3}+)", R"(\X)", "[[:alpha:]]", "[a", "[a&&]"})
    EXPECT_THROW(Pattern(refused, Engine::oniguruma), Fault) << refused;
}

TEST(Scan, OnlyKnownPatternsHaveOne) {
  EXPECT_EQ(find_scan("\\w+"), nullptr);
  EXPECT_EQ(find_scan(""), nullptr);
}

TEST(Normalize, Forms) {
  struct Row {
    Form form;
    const char *from, *to;
  };
  for (const Row& row : std::initializer_list<Row>{{Form::nfc, "e\u0301", "é"},
                                                   {Form::nfd, "é", "e\u0301"},
                                                   {Form::nfc, "\u1100\u1161\u11a8", "각"},
                                                   {Form::nfd, "각", "\u1100\u1161\u11a8"},
                                                   {Form::nfkc, "ﬁ①Ａ", "fi1A"},
                                                   {Form::nfkd, "ﬁé", "fie\u0301"},
                                                   {Form::nfc, "a\u0323\u0307", "ạ\u0307"},
                                                   {Form::nfc, "a\u0307\u0323", "ạ\u0307"},
                                                   {Form::nfc, "plain", "plain"},
                                                   {Form::nfc, "\u0958", "\u0915\u093c"}}) {
    EXPECT_EQ(normal_form(row.form, row.from), row.to) << row.from;
  }
  EXPECT_EQ(lowercase("ÀBc İ"), "àbc i\u0307");
}

TEST(Utf8, WhatCanBeShownOfAGrowingText) {
  struct Row {
    std::string text;
    size_t complete;
  };
  for (const Row& row : std::initializer_list<Row>{{"", 0},
                                                   {"abc", 3},
                                                   {"ab\xE2\x82", 2},
                                                   {"ab\xF0\x9F\x99", 2},
                                                   {"ab\xF0\x9F\x99\x82", 6},
                                                   {"a\xEF\xBF\xBD", 1},
                                                   {"a\xFF", 2}}) {
    EXPECT_EQ(complete_size(row.text), row.complete) << testing::PrintToString(row.text);
  }
}

}  // namespace
}  // namespace lockstep::text

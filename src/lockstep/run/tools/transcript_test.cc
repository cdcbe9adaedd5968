// Growing texts against the same text decoded whole, with tokens that end anywhere inside characters.
#include "lockstep/run/tools/transcript.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/text/utf8.h"

namespace lockstep::run {
namespace {

// Tokens are pieces of text; the first of a text loses its space, as SentencePiece's do.
struct Pieces {
  std::vector<std::string> pieces;
  bool strips = false;
  std::string operator()(std::span<const int32_t> tokens) const {
    std::string text;
    for (const int32_t token : tokens) text += pieces[static_cast<size_t>(token)];
    return strips && text.starts_with(' ') ? text.substr(1) : text;
  }
};
const std::vector<std::string> kPieces = {"a",    " b",       "\xE2",     "\x82", "\xAC", "en", "d\n", "\n",
                                          "en d", "\xF0\x9F", "\x98\x80", " ",    "END",  "E",  "N",   "D"};

TEST(Transcript, GrowsToWhatIsDecodedWholeAndShowsNothingThatChanges) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " round " << round);
    const Pieces decode{kPieces, round % 2 == 0};
    std::vector<int32_t> tokens;
    for (int i = 0; i < round % 5; ++i) tokens.push_back(static_cast<int32_t>(random() % kPieces.size()));
    Transcript transcript(decode, tokens, {});
    std::string shown;
    for (int i = 0; i < 60; ++i) {
      tokens.push_back(static_cast<int32_t>(random() % kPieces.size()));
      ASSERT_TRUE(transcript.add(tokens.back()));
      ASSERT_EQ(transcript.text(), decode(tokens));
      const std::string now = transcript.text().substr(0, transcript.complete());
      ASSERT_TRUE(now.starts_with(shown)) << "what was shown has changed";
      shown = now;
    }
  }
}

struct Stop {
  std::vector<int32_t> prompt, tokens;
  std::vector<std::string> stops;
  std::string text;  // where it ends; empty: it does not
};

TEST(Transcript, StopsBeforeAStringThatSeveralTokensMake) {
  const std::vector<Stop> rows = {
      {{0}, {0, 13, 14, 15, 0}, {"END"}, "aa"},  // E, N, D
      {{0}, {0, 12, 0}, {"END"}, "aa"},          // in one token
      {{12}, {0, 0, 12}, {"END"}, "ENDaa"},      // not in the prompt
      {{13, 14}, {15, 0, 12}, {"END"}, "ENDa"},  // nor across its end
      {{}, {5, 6, 7}, {"\n\n", "zz"}, "end"},   {{0}, {13, 14, 0, 13, 14}, {"END"}, ""},
      {{0}, {2, 3, 4}, {"\xE2\x82\xAC"}, "a"},  // inside a character
      {{0}, {1, 12, 0}, {"b", "END"}, "a "},    // the first of two
  };
  const Pieces decode{kPieces};
  for (const Stop& row : rows) {
    Transcript transcript(decode, row.prompt, row.stops);
    std::string shown;
    bool more = true;
    for (size_t i = 0; more && i < row.tokens.size(); ++i) {
      more = transcript.add(row.tokens[i]);
      const std::string now = transcript.text().substr(0, transcript.complete());
      EXPECT_TRUE(now.starts_with(shown));
      shown = now;
    }
    EXPECT_EQ(more, row.text.empty());
    if (more) continue;
    EXPECT_EQ(transcript.text(), row.text);
    EXPECT_EQ(shown, row.text);
  }
}

// A decoder whose parts are no parts of the whole: all is decoded every time, and still right.
TEST(Transcript, DecodersThatLookBackAreDecodedWhole) {
  const auto decode = [](std::span<const int32_t> tokens) {
    std::string text;
    for (const int32_t token : tokens) text = token == 0 ? "" : text + static_cast<char>('a' + token);
    return text;
  };
  Transcript transcript(decode, {1, 2}, {});
  for (const int32_t token : {3, 0, 4, 5}) transcript.add(token);
  EXPECT_EQ(transcript.text(), decode(std::vector<int32_t>{1, 2, 3, 0, 4, 5}));
}

}  // namespace
}  // namespace lockstep::run

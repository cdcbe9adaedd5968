// Small tokenizers with ids that the owners' libraries gave them; real_tokenizers has the real ones.
#include "lockstep/text/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/text/bpe_trainer.h"
#include "lockstep/text/byte_level.h"

namespace lockstep::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

// Made by tools/samples/small_tokenizers.py with `tokenizers`, which wrote down what it says.
json samples() {
  std::ifstream file(std::string(LOCKSTEP_SOURCE) + "/tools/samples/small_tokenizers.json");
  return json::parse(file);
}

Ids encode(const Tokenizer& tokenizer, const std::string& text, const EncodeOptions& options = {}) {
  Ids ids;
  tokenizer.encoder()->encode(text, ids, options);
  return ids;
}

TEST(Tokenizer, IdsAndTextAreTheOwners) {
  const base::TemporaryFolder folder;
  int rows = 0;
  for (const json& sample : samples()) {
    const auto name = sample["name"].get<std::string>();
    SCOPED_TRACE(name);
    folder.write(name + "/tokenizer.json", sample["tokenizer"].dump());
    const auto tokenizer = open_tokenizer(folder.path() + "/" + name);
    EXPECT_EQ(tokenizer->vocab(), sample["vocab"].get<int64_t>());
    const auto encoder = tokenizer->encoder();  // one for all: what it remembers must not change what it says
    for (int round = 0; round < 2; ++round) {
      for (const json& row : sample["rows"]) {
        Ids ids;
        encoder->encode(row["text"].get<std::string>(), ids);
        EXPECT_EQ(ids, row["ids"].get<Ids>()) << row["text"];
        EXPECT_EQ(tokenizer->decode(ids), row["decoded"].get<std::string>()) << row["text"];
        ++rows;
      }
    }
  }
  EXPECT_GT(rows, 300);
}

// A word with more characters than its tokenizer allows is one unknown token, as in its library.
TEST(Tokenizer, WordPieceHasALongestWord) {
  const base::TemporaryFolder folder;
  for (const json& sample : samples()) {
    if (sample["name"] != "bert") continue;
    folder.write("tokenizer.json", sample["tokenizer"].dump());
    const auto tokenizer = open_tokenizer(folder.path());
    const EncodeOptions plain{.add_special = false};
    EXPECT_EQ(encode(*tokenizer, std::string(100, 'a'), plain).size(), 100u);
    EXPECT_EQ(encode(*tokenizer, std::string(101, 'a'), plain), Ids{0});
    return;
  }
  FAIL() << "no sample of that name";
}

// Ids by `tokenizers` 0.23: a token of space that takes the space around it leaves none for the next.
TEST(Tokenizer, TokensOfSpaceTakeWhatIsLeft) {
  struct Row {
    bool lstrip, rstrip;
    Ids ids;
  };
  for (const Row& row : {Row{true, true, {0, 1, 0}}, Row{false, true, {0, 1, 1, 1, 1, 0}},
                         Row{true, false, {0, 1, 1, 1, 1, 0}}}) {
    const base::TemporaryFolder folder;
    const json token = {{"id", 1},
                        {"content", " "},
                        {"special", false},
                        {"single_word", false},
                        {"normalized", false},
                        {"lstrip", row.lstrip},
                        {"rstrip", row.rstrip}};
    folder.write("tokenizer.json",
                 json({{"added_tokens", json::array({token})},
                       {"model", {{"type", "WordLevel"}, {"vocab", {{"?", 0}}}, {"unk_token", "?"}}}})
                     .dump());
    EXPECT_EQ(encode(*open_tokenizer(folder.path()), "a    b", {}), row.ids) << row.lstrip << row.rstrip;
  }
}

// The bytes, and a few tokens on top of them.
std::string tiny_tokenizer(const std::vector<std::pair<std::string, std::string>>& merges,
                           const json& changes = {}) {
  json vocab = json::object(), list = json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[letter_of_byte(static_cast<unsigned char>(byte))] = byte;
  for (const auto& [left, right] : merges) {
    vocab[left + right] = vocab.size();
    list.push_back({left, right});
  }
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  json file = {{"added_tokens", json::array()},
               {"normalizer", nullptr},
               {"pre_tokenizer", bytes},
               {"post_processor", nullptr},
               {"decoder", bytes},
               {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}};
  if (!changes.is_null()) file.merge_patch(changes);
  return file.dump();
}

std::unique_ptr<Tokenizer> open_text(const base::TemporaryFolder& folder, const std::string& text,
                                     const std::string& name = "tokenizer.json") {
  return open_tokenizer(folder.write(name, text));
}

TEST(Tokenizer, ALongRunIsNoTrap) {
  const base::TemporaryFolder folder;
  const auto tokenizer = open_text(folder, tiny_tokenizer({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  const Ids ids = encode(*tokenizer, std::string(1'000'003, 'a'));  // quadratic, this takes hours
  ASSERT_EQ(ids.size(), 125'000u + 2);
  EXPECT_EQ(ids.front(), 258);
  EXPECT_EQ(Ids(ids.end() - 2, ids.end()), (Ids{256, 'a'}));
}

TEST(Tokenizer, BrokenTextIsReplacedAsPythonDoes) {
  const base::TemporaryFolder folder;
  const auto tokenizer = open_text(folder, tiny_tokenizer({}));
  struct Row {
    std::string bytes, means;
  };
  const std::string no = "\xEF\xBF\xBD";
  for (const Row& row : std::initializer_list<Row>{{"a\xFF", "a" + no},
                                                   {"\xE2\x82", no},
                                                   {"\xE2\x82z", no + "z"},
                                                   {"\xED\xA0\x80", no + no + no},
                                                   {"\xF0\x9F\x99", no},
                                                   {"\xC0\x80", no + no},
                                                   {std::string("a\0b", 3), std::string("a\0b", 3)},
                                                   {"\xF4\x90\x80\x80", no + no + no + no}}) {
    EXPECT_EQ(encode(*tokenizer, row.bytes), encode(*tokenizer, row.means)) << row.means;
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, row.bytes)), row.means);
  }
}

TEST(Tokenizer, SpecialTokensInTextCountUnlessTheyAreText) {
  const base::TemporaryFolder folder;
  const json added = {{{"id", 256}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}}};
  const auto tokenizer = open_text(folder, tiny_tokenizer({}, {{"added_tokens", added}}));
  EXPECT_EQ(encode(*tokenizer, "a<|end|>b").size(), 3u);
  EXPECT_EQ(encode(*tokenizer, "a<|end|>b", {.parse_special = false}).size(), 9u);
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "a<|end|>b"), true), "ab");
  EXPECT_EQ(tokenizer->special_tokens().size(), 1u);
}

TEST(Tokenizer, CutsBetweenWordsChangeNothing) {
  for (const json& sample : samples()) {
    const base::TemporaryFolder folder;
    const auto tokenizer = open_text(folder, sample["tokenizer"].dump());
    if (!tokenizer->cuts_between_words()) continue;
    for (const json& row : sample["rows"]) {
      const auto text = row["text"].get<std::string>();
      const EncodeOptions plain{.add_special = false};
      for (size_t at = 1; at + 1 < text.size(); ++at) {
        if (text[at] != ' ' || !std::isalpha(static_cast<unsigned char>(text[at - 1])) ||
            !std::isalpha(static_cast<unsigned char>(text[at + 1])))
          continue;
        Ids parts = encode(*tokenizer, text.substr(0, at), plain);
        const Ids rest = encode(*tokenizer, text.substr(at), plain);
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_EQ(parts, encode(*tokenizer, text, plain))
            << sample["name"] << " " << row["text"] << " at " << at;
      }
    }
  }
}

TEST(Tokenizer, TheHashIsOfWhatMakesIds) {
  const base::TemporaryFolder folder;
  const auto hash = [&](const std::string& text) { return open_text(folder, text)->hash(); };
  const std::string one = tiny_tokenizer({{"a", "b"}});
  EXPECT_EQ(hash(one), hash(json::parse(one).dump(4))) << "written again";
  json legacy = json::parse(one);
  legacy["model"]["merges"] = {"a b"};
  EXPECT_EQ(hash(one), hash(legacy.dump())) << "merges in the old form";
  EXPECT_NE(hash(one), hash(tiny_tokenizer({{"a", "c"}})));
  EXPECT_NE(hash(one), hash(tiny_tokenizer({{"a", "b"}}, {{"normalizer", {{"type", "NFC"}}}})));
  const json added = {{{"id", 300}, {"content", "<x>"}, {"special", true}}};
  EXPECT_NE(hash(one), hash(tiny_tokenizer({{"a", "b"}}, {{"added_tokens", added}})));
}

TEST(Tokenizer, WhatIsNotSupportedIsRefusedByName) {
  struct Row {
    int number;
    const char* says;
    json changes;
  };
  const base::TemporaryFolder folder;
  for (const Row& row : std::initializer_list<Row>{
           {243, "Nmt", {{"normalizer", {{"type", "Nmt"}}}}},
           {243, "UnicodeScripts", {{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}},
           {243, "Odd", {{"post_processor", {{"type", "Odd"}}}}},
           {243, "Odd", {{"decoder", {{"type", "Odd"}}}}},
           {243, "Odd", {{"model", {{"type", "Odd"}}}}},
           {243, "dropout", {{"model", {{"dropout", 0.1}}}}},
           {242,
            "(a",
            {{"pre_tokenizer",
              {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}}}}},
           {243,
            "Sideways",
            {{"pre_tokenizer",
              {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}}}}},
           {241, "same id", {{"model", {{"vocab", {{"zz", 3}}}}}}},
           {241, "is not in its vocabulary", {{"model", {{"merges", {"a zz"}}}}}},
           {241, "two tokens are expected", {{"model", {{"merges", {7}}}}}},
           {241, "unk_token", {{"model", {{"unk_token", "<nope>"}}}}},
           {241, "integer", {{"model", {{"vocab", {{"zz", -3}}}}}}},
           {241, "integer", {{"model", {{"vocab", {{"zz", 1e12}}}}}}},
           {241, "gives to", {{"added_tokens", {{{"id", 3}, {"content", "<s>"}}}}}},
           {241,
            "clash",
            {{"added_tokens", {{{"id", 300}, {"content", "<s>"}}, {{"id", 300}, {"content", "<t>"}}}}}},
           {241, "model", {{"model", nullptr}}}}) {
    const std::string file = folder.write("tokenizer.json", tiny_tokenizer({}, row.changes));
    const std::string sentence = base::refusal(row.number, [&] { open_tokenizer(file); });
    EXPECT_NE(sentence.find(row.says), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("tokenizer.json"), std::string::npos) << sentence;
  }
}

TEST(Tokenizer, OtherFilesAreRefused) {
  const base::TemporaryFolder folder;
  struct Row {
    int number;
    const char* name;
    std::string bytes;
  };
  for (const Row& row :
       std::initializer_list<Row>{{241, "a.json", "{\"model\": "},
                                  {241, "a.txt", "hello world"},
                                  {241, "empty", ""},
                                  {244, "a.tiktoken", "IQ== 0\nIg== 1\n"},
                                  {241, "b.tiktoken", "IQ== 0\nnonsense\n"},
                                  {241, "a.model", std::string("\x0A\x7F\x0A\x05<unk>", 9)},
                                  {241, "tekken.json", "{\"vocab\": [{\"token_bytes\": 3}]}"}}) {
    const std::string file = folder.write(row.name, row.bytes);
    const std::string sentence = base::refusal(row.number, [&] { open_tokenizer(file); });
    EXPECT_NE(sentence.find(row.name), std::string::npos) << sentence;
  }
  base::refusal(240, [&] { open_tokenizer(folder.path() + "/absent"); });
}

// Every beginning of a file, and files with a byte changed: an error or a tokenizer, never worse.
TEST(Tokenizer, DamagedFilesDoNoHarm) {
  const base::TemporaryFolder folder;
  const std::string whole = tiny_tokenizer({{"a", "b"}});
  for (size_t i = 0; i < whole.size(); i += 37) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x15);
    for (const std::string& text : {whole.substr(0, i), changed}) {
      const int number = base::number_of_refusal([&] { encode(*open_text(folder, text), "some text"); });
      EXPECT_TRUE(number == 0 || (number >= 240 && number <= 245)) << number;
    }
  }
}

// A .model with these pieces, and a normalizer that does nothing.
struct Piece {
  std::string text;
  float score;
  char type;  // 1 is normal, 2 unknown, 4 the user's
};
std::string sentencepiece_unigram(const std::vector<Piece>& pieces) {
  const auto field = [](char number, const std::string& bytes) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
  };
  std::string model;
  for (const Piece& piece : pieces) {
    std::string score(4, '\0');
    std::memcpy(score.data(), &piece.score, 4);
    model += field(1, field(1, piece.text) + "\x15" + score + "\x18" + piece.type);
  }
  const auto flag = [](char number, char value) {
    return std::string{static_cast<char>(number << 3), value};
  };
  return model + field(2, flag(3, 1)) + field(3, flag(3, 0) + flag(4, 0));
}

// Ids by sentencepiece 0.2.3.
TEST(Tokenizer, UnigramOfSentencePieceRoundsAsItsOwnerDoes) {
  struct Row {
    std::vector<Piece> pieces;
    std::string text;
    Ids ends_with;
  };
  // One "ab" is less likely than "a" and "b", by less than what a float of 100,000 tells apart: sums begin
  // again there.
  const std::vector<Piece> close = {
      {"<unk>", 0, 2}, {"x", -3.3f, 1}, {"a", -1, 1}, {"b", -1, 1}, {"ab", -2.001f, 1}};
  // The user's pieces before all others, a long one before two short ones.
  const std::vector<Piece> users = {{"<unk>", 0, 2}, {"ab", 0, 4},      {"a", 0, 4},      {"b", -0.05f, 1},
                                    {"c", -1, 1},    {"abc", -0.5f, 1}, {"bc", -0.01f, 1}};
  const std::vector<Row> rows = {{close, std::string(10, 'x') + "ab", {1, 2, 3}},
                                 {close, std::string(30'304, 'x') + "ab", {1, 1, 4}},
                                 {close, std::string(30'400, 'x') + "ab", {1, 2, 3}},
                                 {close, std::string(60'700, 'x') + "ab", {1, 2, 3}},
                                 {users, "ab", {1}},
                                 {users, "abc", {2, 6}},
                                 {users, "abcaab", {2, 6, 2, 1}}};
  const base::TemporaryFolder folder;
  for (const Row& row : rows) {
    folder.write("tokenizer.model", sentencepiece_unigram(row.pieces));
    const Ids ids = encode(*open_tokenizer(folder.path() + "/tokenizer.model"), row.text);
    ASSERT_GE(ids.size(), row.ends_with.size());
    EXPECT_EQ(Ids(ids.end() - static_cast<std::ptrdiff_t>(row.ends_with.size()), ids.end()), row.ends_with)
        << row.text.size();
  }
}

TEST(Tokenizer, LearnedOnesAreReadAgain) {
  const base::TemporaryFolder folder;
  BpeTrainer trainer({.vocab_size = 270, .special_tokens = {"<|end|>"}});
  for (int i = 0; i < 20; ++i) trainer.add("the cat sat on the mat, the other cat did not\n");
  const TrainedBpe learned = trainer.train();
  EXPECT_EQ(learned.vocab_size(), 270);
  EXPECT_EQ(learned.merges.size(), 13u);
  save_tokenizer(learned, folder.path() + "/mine");
  const auto tokenizer = open_tokenizer(folder.path() + "/mine");
  EXPECT_EQ(tokenizer->vocab(), 270);
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "the cat<|end|>")), "the cat<|end|>");
  EXPECT_LT(encode(*tokenizer, "the cat").size(), 6u);
  EXPECT_EQ(base::number_of_refusal([] { BpeTrainer({.vocab_size = 200}); }), 248);
}

}  // namespace
}  // namespace lockstep::text

// Token files: whole or not there, going on after a stop, and refused where another tokenizer made them.
#include "lockstep/data/corpus/tokenize.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/data/corpus/token_writer.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/documents/packing_testing.h"
#include "lockstep/data/formats/files.h"
#include "lockstep/data/test_folder.h"
#include "lockstep/text/bpe_trainer.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

// A tokenizer of the bytes and a few pairs.
std::string make_tokenizer(const TestFolder& folder, const std::string& name,
                           const std::string& text = "the cat the cat ") {
  text::BpeTrainer trainer({.vocab_size = 262, .special_tokens = {"<|endoftext|>"}});
  trainer.add(text);
  text::save_tokenizer(trainer.train(), folder / name);
  return folder / name;
}

Ids ids_of(const text::Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  tokenizer.encoder()->encode(text, ids);
  return ids;
}

recipe::Recipe recipe_of(const std::string& path, const std::string& tokenizer) {
  recipe::Recipe recipe;
  recipe.data.kind = "auto";
  recipe.data.path = path;
  recipe.data.tokenizer = tokenizer;
  recipe.data.seq_len = 4;
  recipe.data.eval_fraction = 0;
  return recipe;
}

Ids all_tokens(const Dataset& data) {
  Ids out, inputs(4), labels(4);
  for (int64_t i = 0; i < data.samples(Split::train); ++i) {
    data.read(Split::train, i, inputs, labels);
    out.insert(out.end(), inputs.begin(), inputs.end());
  }
  out.push_back(labels.back());
  return out;
}

std::string long_text(int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += i % 7 == 0 ? "the cat, " : i % 11 == 0 ? "naïve\n" : "word ";
  return text;
}

TEST(TokenizeFiles, FilesHoldTheTokensOfTheText) {
  const TestFolder folder;
  const auto tokenizer = text::open_tokenizer(make_tokenizer(folder, "t"));
  const std::string text = long_text(600'000);  // several parts
  const std::string one = folder.write("in/a.txt", text),
                    two = folder.write("in/b.jsonl", "{\"text\": \"the cat\"}\n\n{\"text\": \"\"}\n");
  const TokenizeResult result =
      tokenize_files({.inputs = {one, two}, .folder = folder / "out", .options = {}}, *tokenizer, {});
  EXPECT_EQ(result.files.size(), 2u);
  EXPECT_EQ(result.counts.documents, 3);
  const auto data = open_dataset(recipe_of(folder / "out", folder / "t"));
  Ids wanted = ids_of(*tokenizer, text);
  for (const Ids& more : {Ids{0}, ids_of(*tokenizer, "the cat"), Ids{0, 0}})
    wanted.insert(wanted.end(), more.begin(), more.end());
  const Ids read = all_tokens(*data);
  ASSERT_LE(read.size(), wanted.size());
  ASSERT_GT(read.size() + 4, wanted.size());
  wanted.resize(read.size());
  EXPECT_TRUE(read == wanted);
  EXPECT_EQ(data->vocab(), tokenizer->vocab());
  EXPECT_EQ(data->decode(data->encode("the cat")), "the cat");
  // On the fly, the same.
  const Ids there = all_tokens(*open_dataset(recipe_of(one, folder / "t")));
  EXPECT_TRUE(std::equal(there.begin(), there.end(), wanted.begin()));
}

TEST(TokenizeFiles, GoesOnWhereItStopped) {
  const TestFolder folder;
  const auto tokenizer = text::open_tokenizer(make_tokenizer(folder, "t"));
  const std::string a = folder.write("a.txt", "the cat"), b = folder.write("b.jsonl", "{\"text\": 5}\n");
  const TokenizeJob job{.inputs = {a, b}, .folder = folder / "out", .options = {}};
  EXPECT_EQ(base::number_of_refusal([&] { tokenize_files(job, *tokenizer, {}); }), 213);
  for (const auto& entry : fs::directory_iterator(folder / "out"))
    EXPECT_FALSE(entry.path().filename().string().starts_with("b.jsonl"))
        << "a file of an input that is not done";
  folder.write("b.jsonl", "{\"text\": \"the\"}\n");
  const TokenizeResult again = tokenize_files(job, *tokenizer, {});
  EXPECT_EQ(again.done_before, 1);
  EXPECT_EQ(again.files.size(), 1u);
  EXPECT_EQ(tokenize_files(job, *tokenizer, {}).done_before, 2);
  folder.write("a.txt", "another text");
  EXPECT_EQ(tokenize_files(job, *tokenizer, {}).done_before, 1) << "an input that has changed";
  const auto other = text::open_tokenizer(make_tokenizer(folder, "u", "dogs and dogs "));
  const std::string sentence = base::refusal(247, [&] { tokenize_files(job, *other, {}); });
  EXPECT_NE(sentence.find("another tokenizer"), std::string::npos);
}

// Objects of a store come one by one, into a cache that is smaller than all of them; those that are done are
// not fetched again.
TEST(TokenizeFiles, ObjectsOfAStoreComeInTurn) {
  const TestFolder folder;
  ::setenv("LOCKSTEP_OBJECT_CACHE", (folder / "cache").c_str(), 1);
  ::setenv("LOCKSTEP_OBJECT_CACHE_GIB", "0.00002", 1);  // 21 KB
  const auto tokenizer = text::open_tokenizer(make_tokenizer(folder, "t"));
  TokenizeJob local{.inputs = {}, .folder = folder / "local", .options = {}};
  for (int i = 0; i < 5; ++i)
    local.inputs.push_back(folder.write("corpus/" + std::to_string(i) + ".txt", long_text(1500 + i)));
  FoundFiles found = find_files(
      {.key = "FILES", .path = "file://" + (folder / "corpus"), .remote = FileQuery::Remote::in_turn});
  ASSERT_EQ(found.files.size(), 5u);
  const TokenizeJob there{
      .inputs = found.files, .objects = found.objects, .folder = folder / "there", .options = {}};
  const TokenizeResult here = tokenize_files(local, *tokenizer, {}),
                       result = tokenize_files(there, *tokenizer, {});
  EXPECT_EQ(result.counts.tokens, here.counts.tokens);
  ASSERT_EQ(result.files.size(), here.files.size());
  for (size_t i = 0; i < here.files.size(); ++i)
    EXPECT_EQ(base::read_file(result.files[i]), base::read_file(here.files[i]));
  fs::remove_all(folder / "cache");
  EXPECT_EQ(tokenize_files(there, *tokenizer, {}).done_before, 5);
  EXPECT_FALSE(fs::exists(folder / "cache"));
  ::unsetenv("LOCKSTEP_OBJECT_CACHE_GIB");
}

TEST(TokenizeFiles, BadDocumentsStopOrAreCounted) {
  const TestFolder folder;
  const auto tokenizer = text::open_tokenizer(make_tokenizer(folder, "t"));
  const std::string file = folder.write(
      "a.jsonl",
      "{\"text\": \"one\"}\nnot json\n{\"body\": \"x\"}\n{\"text\": 3}\n[1]\n{\"text\": \"two\"}\n");
  TokenizeJob job{.inputs = {file}, .folder = folder / "out", .options = {}};
  const std::string sentence = base::refusal(210, [&] { tokenize_files(job, *tokenizer, {}); });
  EXPECT_NE(sentence.find("a.jsonl line 2"), std::string::npos) << sentence;
  job.options.on_error = OnError::skip;
  const TokenizeResult result = tokenize_files(job, *tokenizer, {});
  EXPECT_EQ(result.counts.skipped, 4);
  EXPECT_EQ(result.counts.documents, 2);
  ASSERT_EQ(result.counts.faults.size(), 4u);
  EXPECT_NE(result.counts.faults[1].find("line 3"), std::string::npos);
}

// Whatever the texts lie in, packed or not: the tokens of the same texts as JSONL.
TEST(TokenizeFiles, FormatsAndPackingsGiveTheSameTokens) {
  const TestFolder folder;
  const auto tokenizer = text::open_tokenizer(make_tokenizer(folder, "t"));
  const std::string samples = LOCKSTEP_SOURCE "/tools/samples/corpora/";
  const auto tokens_of = [&](const std::string& file, const std::string& field = "text") {
    Ids all;
    const TokenizeCounts counts = tokenize_file(
        file, *tokenizer, {.corpus = {.field = field}, .encoding = {}},
        [&](std::span<const int32_t> tokens) { all.insert(all.end(), tokens.begin(), tokens.end()); });
    EXPECT_EQ(counts.tokens, static_cast<int64_t>(all.size()));
    return all;
  };
  const Ids expected = tokens_of(samples + "texts.jsonl");
  const std::string lines = base::try_read_file(samples + "texts.jsonl").text;
  for (const std::string& file :
       {folder.write("a.jsonl.gz", gzip(lines)), folder.write("b.ndjson.zst", zstd(lines)),
        samples + "mds/index.json", samples + "mds-zstd/index.json"})
    EXPECT_EQ(tokens_of(file), expected) << file;
  const std::string text = long_text(300000);  // several parts
  EXPECT_EQ(tokens_of(folder.write("c.txt.zst", zstd(text))), tokens_of(folder.write("c.txt", text)));
  EXPECT_NE(
      base::refusal(232, [&] { tokens_of(samples + "mds-int32/index.json", "tokens"); }).find("token 500"),
      std::string::npos);
}

TEST(TokenizeFiles, TokensOfAnotherTokenizerAreRefused) {
  const TestFolder folder;
  make_tokenizer(folder, "t");
  make_tokenizer(folder, "u", "dogs and dogs ");
  const std::string a = folder.write("a.txt", long_text(100));
  for (const char* name : {"t", "u"})
    tokenize_files({.inputs = {a}, .folder = (folder / name) + "-out", .options = {}},
                   *text::open_tokenizer(folder / name), {});
  EXPECT_NO_THROW(open_dataset(recipe_of(folder / "t-out", folder / "t")));
  EXPECT_NO_THROW(open_dataset(recipe_of(folder / "t-out", "bytes"))) << "nobody asks whose they are";
  const std::string sentence =
      base::refusal(237, [&] { open_dataset(recipe_of(folder / "t-out", folder / "u")); });
  EXPECT_NE(sentence.find("was made by the tokenizer"), std::string::npos) << sentence;
  base::refusal(237,
                [&] { open_dataset(recipe_of((folder / "t-out") + "," + (folder / "u-out"), "bytes")); });
}

TEST(TokenizeFiles, ManyTokensAreSeveralFiles) {
  const TestFolder folder;
  TokenWriter writer(folder / "x", 100'000, 7, 10);
  Ids ids(25);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(70'000 + i);
  writer.add(std::span(ids).first(3));
  writer.add(std::span(ids).subspan(3));
  EXPECT_TRUE(fs::is_empty(folder.path()) || !fs::exists(folder / "x.bin")) << "seen before it is whole";
  EXPECT_EQ(writer.finish().size(), 3u);
  recipe::Recipe recipe = recipe_of(folder.path(), "bytes");
  recipe.data.kind = "tokens";
  EXPECT_EQ(all_tokens(*open_dataset(recipe)), ids);
  {
    TokenWriter lost(folder / "y", 100, 7);
    lost.add(std::span(ids).first(3));
  }
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_TRUE(entry.path().filename().string().starts_with("x"));
}

}  // namespace
}  // namespace lockstep::data

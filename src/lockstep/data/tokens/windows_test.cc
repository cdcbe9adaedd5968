// Samples of text, jsonl and token files: what is in them, and in which split.
#include "lockstep/data/tokens/windows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/documents/documents.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

using Tokens = std::vector<int32_t>;

// All samples of a split, each as the seq_len + 1 tokens it is made of.
std::vector<Tokens> all_samples(const Dataset& dataset, Split split, int64_t seq_len) {
  std::vector<Tokens> samples;
  for (int64_t i = 0; i < dataset.samples(split); ++i) {
    Tokens inputs(static_cast<size_t>(seq_len)), labels = inputs;
    dataset.read(split, i, inputs, labels);
    for (size_t t = 0; t + 1 < inputs.size(); ++t) EXPECT_EQ(inputs[t + 1], labels[t]);
    inputs.push_back(labels.back());
    samples.push_back(inputs);
  }
  return samples;
}

std::vector<std::string> texts(const Dataset& dataset, Split split, int64_t seq_len) {
  std::vector<std::string> result;
  for (const Tokens& tokens : all_samples(dataset, split, seq_len)) result.push_back(dataset.decode(tokens));
  return result;
}

recipe::Recipe recipe_for(const std::string& kind, const std::string& path, int64_t seq_len) {
  recipe::Recipe recipe;
  recipe.data.kind = kind;
  recipe.data.path = path;
  recipe.data.seq_len = seq_len;
  recipe.data.eval_fraction = 0;
  return recipe;
}

using Texts = std::vector<std::string>;

TEST(Text, IsDescribedInALine) {
  const TestFolder folder;
  std::string list;
  for (int k = 0; k < 40; ++k)
    list += (k > 0 ? "," : "") + folder.write("part-" + std::to_string(k) + ".txt", "abcdef");
  const std::string said = open_dataset(recipe_for("text", list, 3))->describe();
  EXPECT_NE(said.find("part-0.txt and 39 more: 240 tokens"), std::string::npos) << said;
  folder.write("mixed/a.jsonl", "{\"text\": \"abcdef\"}\n"), folder.write("mixed/README.md", "x");
  const std::string other = open_dataset(recipe_for("jsonl", folder / "mixed", 3))->describe();
  EXPECT_NE(other.find("skipped because of its name: " + (folder / "mixed/README.md")), std::string::npos)
      << other;
}

TEST(Text, IsCutIntoWindowsThatShareOneToken) {
  const TestFolder folder;
  const auto dataset = open_dataset(recipe_for("text", folder.write("a.txt", "abcdefghijk"), 3));
  EXPECT_EQ(texts(*dataset, Split::train, 3), (Texts{"abcd", "defg", "ghij"}));
  EXPECT_EQ(dataset->samples(Split::eval), 0);
}

TEST(Text, AFolderIsOneTextInTheOrderOfNames) {
  const TestFolder folder;
  folder.write("b.txt", "fgh");
  folder.write("a.txt", "abcde");
  folder.write("c.txt", "");
  folder.write("d.txt", "i");
  folder.write(".hidden", "xxx");
  folder.write("inner/e.txt", "yyy");
  const auto dataset = open_dataset(recipe_for("text", folder.path(), 4));
  EXPECT_EQ(texts(*dataset, Split::train, 4), (Texts{"abcde", "efghi"}));
}

// What is evaluated on is part of what a run is: another file there is other data.
TEST(Text, TheHashIsOfBothFiles) {
  const TestFolder folder;
  recipe::Recipe recipe = recipe_for("text", folder.write("a.txt", "0123456789a"), 1);
  std::set<uint64_t> hashes = {open_dataset(recipe)->content_hash()};
  for (const char* text : {"0123456789a", "0123456789b", "b"}) {
    recipe.data.eval_path = folder.write("eval.txt", std::string(text) + "xy");
    hashes.insert(open_dataset(recipe)->content_hash());
  }
  EXPECT_EQ(hashes.size(), 4u);
}

TEST(Text, EvaluatesOnTheLastWindows) {
  const TestFolder folder;
  recipe::Recipe recipe = recipe_for("text", folder.write("a.txt", "0123456789a"), 1);
  const struct {
    double fraction;
    int64_t train, eval;
  } rows[] = {{0, 10, 0}, {0.001, 9, 1}, {0.2, 8, 2}, {0.39, 7, 3},
              {1, 1, 9},  {7, 1, 9},     {-1, 10, 0}, {NAN, 10, 0}};
  for (const auto& row : rows) {
    recipe.data.eval_fraction = row.fraction;
    const auto dataset = open_dataset(recipe);
    EXPECT_EQ(dataset->samples(Split::train), row.train) << row.fraction;
    EXPECT_EQ(dataset->samples(Split::eval), row.eval) << row.fraction;
  }
  recipe.data.eval_fraction = 0.2;
  EXPECT_EQ(texts(*open_dataset(recipe), Split::eval, 1), (Texts{"89", "9a"}));
}

TEST(Text, EvaluatesOnAFileOfItsOwnAndNeverTrainsOnIt) {
  const TestFolder folder;
  folder.write("a.txt", "abc");
  folder.write("c.txt", "def");
  recipe::Recipe recipe = recipe_for("text", folder.path(), 2);
  recipe.data.eval_path = folder.write("b.txt", "EVAL!");
  recipe.data.eval_fraction = 0.5;
  const auto dataset = open_dataset(recipe);
  EXPECT_EQ(texts(*dataset, Split::train, 2), (Texts{"abc", "cde"}));
  EXPECT_EQ(texts(*dataset, Split::eval, 2), (Texts{"EVA", "AL!"}));
}

TEST(Text, AnyByteGoesThereAndBack) {
  const TestFolder folder;
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const auto dataset = open_dataset(recipe_for("text", folder.write("a,b.txt", bytes), 255));
  EXPECT_EQ(texts(*dataset, Split::train, 255), Texts{bytes});
  EXPECT_EQ(dataset->decode(dataset->encode(bytes)), bytes);
  EXPECT_EQ(dataset->decode(Tokens{104, 105, 300, -1}), "hi<300><-1>");
}

TEST(Text, TheHashIsOfTheContent) {
  const TestFolder folder;
  const auto hash = [&](const std::string& content) {
    return open_dataset(recipe_for("text", folder.write("a.txt", content), 2))->content_hash();
  };
  EXPECT_EQ(hash("hello"), hash("hello"));
  EXPECT_NE(hash("hello"), hash("hellp"));
}

TEST(Jsonl, DocumentsEndWithAToken) {
  const TestFolder folder;
  const std::string lines =
      "{\"text\": \"ab\", \"id\": 1}\r\n\n"
      "{\"id\": {\"text\": \"no\"}, \"text\": \"\"}\n"
      "{\"text\": \"first\", \"text\": \"\\u00e9\\n\"}";
  const auto dataset = open_dataset(recipe_for("jsonl", folder.write("a.jsonl", lines), 7));
  const Tokens expected = {'a', 'b', kEndOfDocument, kEndOfDocument, 0xC3, 0xA9, '\n', kEndOfDocument};
  EXPECT_EQ(all_samples(*dataset, Split::train, 7), std::vector<Tokens>{expected});
  EXPECT_EQ(dataset->decode(expected), "ab<end><end>\xC3\xA9\n<end>");
}

TEST(Jsonl, ReadsAnotherField) {
  const TestFolder folder;
  recipe::Recipe recipe =
      recipe_for("jsonl", folder.write("a.jsonl", R"({"text": "no", "body": "yes!"})"), 3);
  recipe.data.field = "body";
  EXPECT_EQ(texts(*open_dataset(recipe), Split::train, 3), Texts{"yes!"});
}

// Larger than one piece of the parallel reader, so that pieces meet; the fault's line must still be right.
TEST(Jsonl, LargeFilesKeepOrderAndLineNumbers) {
  const TestFolder folder;
  std::string lines;
  int64_t count = 0;
  for (; lines.size() < (size_t{40} << 20); ++count) {
    lines += "{\"text\": \"" + std::to_string(count) + std::string(1000, 'x') + "\"}\n";
  }
  const std::string path = folder.write("a.jsonl", lines);
  const auto dataset = open_dataset(recipe_for("jsonl", path, 1000));
  int64_t document = 0;
  std::string text;
  for (int64_t i = 0; i < dataset->samples(Split::train); ++i) {
    Tokens inputs(1000), labels(1000);
    dataset->read(Split::train, i, inputs, labels);
    text += dataset->decode(inputs);
  }
  for (size_t at = 0; (at = text.find("<end>", at)) != std::string::npos; at += 5) {
    ++document;
    const std::string next = std::to_string(document) + "x";
    if (at + 5 + next.size() >= text.size()) break;
    ASSERT_EQ(text.substr(at + 5, next.size()), next);
  }
  EXPECT_GE(document, count - 2);

  const std::string broken = folder.write("b.jsonl", lines + "{}\n" + lines + "oops\n");
  try {
    open_dataset(recipe_for("jsonl", broken, 1000));
    FAIL() << "was opened";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("line " + std::to_string(count + 1) + " "), std::string::npos)
        << error.what();
  }
}

std::string llmc_gpt2(const std::vector<uint16_t>& tokens) {
  return token_header(20240520, 1, static_cast<int32_t>(tokens.size())) + bytes_of(tokens);
}

TEST(TokenFiles, AllFormatsReadTheSame) {
  const TestFolder folder;
  const std::string files[] = {
      folder.write("gpt2.bin", llmc_gpt2({5, 50256, 7, 1, 2})),
      folder.write("llama.bin", token_header(20240801, 7, 5) + bytes_of<uint32_t>({5, 50256, 7, 1, 2})),
      folder.write("nano.bin", bytes_of<uint16_t>({5, 50256, 7, 1, 2})),
  };
  for (const std::string& file : files) {
    const auto dataset = open_dataset(recipe_for("tokens", file, 2));
    EXPECT_EQ(dataset->vocab(), 50257) << file;
    EXPECT_EQ(all_samples(*dataset, Split::train, 2), (std::vector<Tokens>{{5, 50256, 7}, {7, 1, 2}}))
        << file;
    EXPECT_EQ(dataset->decode(Tokens{5, 50256}), "5 50256");
    EXPECT_EQ(dataset->encode(" 5 50256 "), (Tokens{5, 50256}));
    for (const char* text : {"hello", "50257", "-1", "5x", "99999999999999"}) {
      EXPECT_ANY_THROW(dataset->encode(text)) << text;
    }
  }
}

TEST(TokenFiles, LargeTokensSurvive) {
  const TestFolder folder;
  const std::string file =
      folder.write("llama.bin", token_header(20240801, 7, 3) + bytes_of<uint32_t>({128000, 0, 128255}));
  recipe::Recipe recipe = recipe_for("tokens", file, 2);
  EXPECT_EQ(open_dataset(recipe)->vocab(), 128256);
  recipe.model.vocab = 130000;
  EXPECT_EQ(open_dataset(recipe)->vocab(), 130000);
  EXPECT_EQ(all_samples(*open_dataset(recipe), Split::train, 2), (std::vector<Tokens>{{128000, 0, 128255}}));
}

TEST(TokenFiles, ShardsOfAFolderOrAListAreOneStream) {
  const TestFolder folder;
  const std::string second = folder.write("s_2.bin", llmc_gpt2({4, 5, 6, 7}));
  const std::string first = folder.write("s_1.bin", llmc_gpt2({1, 2, 3}));
  folder.write("readme.md", "not tokens");
  const std::vector<Tokens> expected = {{1, 2, 3, 4}, {4, 5, 6, 7}};
  for (const std::string& path : {folder.path(), first + "," + second}) {
    EXPECT_EQ(all_samples(*open_dataset(recipe_for("tokens", path, 3)), Split::train, 3), expected) << path;
  }
  EXPECT_EQ(all_samples(*open_dataset(recipe_for("tokens", second + "," + first, 3)), Split::train, 3),
            (std::vector<Tokens>{{4, 5, 6, 7}, {7, 1, 2, 3}}));
}

// The scan works in pieces of four million tokens: the fault lies in the second.
TEST(TokenFiles, TheScanFindsAFaultFarInside) {
  const TestFolder folder;
  std::vector<uint16_t> tokens(6'000'000, 1);
  tokens[5'000'000] = 999;
  recipe::Recipe recipe = recipe_for("tokens", folder.write("a.bin", bytes_of(tokens)), 8);
  EXPECT_EQ(open_dataset(recipe)->vocab(), 1000);
  recipe.model.vocab = 999;
  try {
    open_dataset(recipe);
    FAIL() << "was opened";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("byte 10000000"), std::string::npos) << error.what();
  }
}

// Files may be written again while a run reads them: an error that names the file, never a signal.
TEST(Files, MadeShorterMeanwhile) {
  const TestFolder folder;
  const std::pair<const char*, std::string> rows[] = {
      {"text", folder.write("a.txt", std::string(1 << 20, 'x'))},
      {"tokens", folder.write("a.bin", bytes_of(std::vector<uint16_t>(1 << 20, 300)))}};
  for (const auto& [kind, path] : rows) {
    const auto dataset = open_dataset(recipe_for(kind, path, 4));
    std::filesystem::resize_file(path, 100);
    Tokens inputs(4), labels(4);
    dataset->read(Split::train, 0, inputs, labels);  // what is left of it can be read
    try {
      dataset->read(Split::train, 100'000, inputs, labels);
      ADD_FAILURE() << path << " was read";
    } catch (const base::DataError& error) {
      EXPECT_EQ(error.number(), 817);
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
    EXPECT_THROW((void)dataset->content_hash(), base::DataError);
  }
}

TEST(TokenFiles, ATokenWrittenLaterIsChecked) {
  const TestFolder folder;
  const std::string path = folder.write("a.bin", bytes_of<uint16_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const auto dataset = open_dataset(recipe_for("tokens", path, 4));
  folder.write("a.bin", bytes_of<uint16_t>({1, 2, 3, 4, 50000, 6, 7, 8, 9}));
  Tokens inputs(4), labels(4);
  EXPECT_THROW(dataset->read(Split::train, 0, inputs, labels), base::DataError);  // a label
}

TEST(Files, ALinkToNothingIsNoMissingFile) {
  const TestFolder folder;
  folder.write("data/a.txt", std::string(100, 'x'));
  std::filesystem::create_symlink(folder / "absent", folder / "data/b.txt");
  EXPECT_THROW(open_dataset(recipe_for("text", folder / "data", 4)), base::DataError);
  std::filesystem::create_symlink(folder / "absent", folder / "data/.hidden");
  std::filesystem::remove(folder / "data/b.txt");
  EXPECT_NO_THROW(open_dataset(recipe_for("text", folder / "data", 4)));
}

}  // namespace
}  // namespace lockstep::data

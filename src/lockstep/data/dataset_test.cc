// Everything that open_dataset refuses, and how: one row a fault.
#include "lockstep/data/dataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/data/grammar/grammar.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

const std::string kLine = R"({"text": "a document of some length"})";

struct Fault {
  const char* name;
  int number;
  std::vector<std::string> says;  // parts of the message
  std::function<void(const TestFolder& folder, recipe::Recipe& recipe)> make;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

// A recipe that reads one file with this content, in samples of four tokens.
std::function<void(const TestFolder&, recipe::Recipe&)> file(const std::string& kind, const std::string& name,
                                                             const std::string& content) {
  return [=](const TestFolder& folder, recipe::Recipe& recipe) {
    recipe.data.kind = kind;
    recipe.data.path = folder.write(name, content);
  };
}

const std::string kLlmc = token_header(20240520, 1, 10);

const Fault kFaults[] = {
    {"unknown_kind",
     200,
     {"\"tekst\"", "grammar, text, jsonl, preference, chat, csv, parquet, arrow, mds, tokens, arrays, mix"},
     [](auto&, auto& r) { r.data.kind = "tekst"; }},
    {"no_path", 201, {"data.path"}, [](auto&, auto& r) { r.data.kind = "text"; }},
    {"only_commas", 201, {"data.path"}, [](auto&, auto& r) { r.data.kind = "tokens", r.data.path = ",,"; }},
    {"missing_file",
     202,
     {"absent.txt", "data.path", "No such file"},
     [](auto& f, auto& r) { r.data.kind = "text", r.data.path = f / "absent.txt"; }},
    {"missing_eval_file",
     202,
     {"absent.txt", "data.eval_path"},
     [](auto& f, auto& r) {
       file("text", "a.txt", std::string(100, 'x'))(f, r);
       r.data.eval_path = f / "absent.txt";
     }},
    {"not_a_file",
     202,
     {"/dev/null", "neither"},
     [](auto&, auto& r) { r.data.kind = "text", r.data.path = "/dev/null"; }},
    {"one_missing_of_a_list",
     202,
     {"absent.bin"},
     [](auto& f, auto& r) {
       file("tokens", "a.bin", std::string(100, '\1'))(f, r);
       r.data.path += "," + (f / "absent.bin");
     }},
    {"empty_folder",
     203,
     {"*.bin"},
     [](auto& f, auto& r) { r.data.kind = "tokens", r.data.path = f.path(); }},
    {"folder_of_other_files",
     203,
     {"*.jsonl"},
     [](auto& f, auto& r) {
       file("jsonl", "notes.txt", "hello")(f, r);
       r.data.path = f.path();
     }},
    {"folder_holds_only_the_eval_file",
     203,
     {"data.path"},
     [](auto& f, auto& r) {
       file("text", "eval.txt", std::string(100, 'x'))(f, r);
       r.data.eval_path = r.data.path;
       r.data.path = f.path();
     }},
    {"no_seq_len", 204, {"data.seq_len = 0"}, [](auto&, auto& r) { r.data.seq_len = 0; }},
    {"huge_seq_len", 204, {"data.seq_len"}, [](auto&, auto& r) { r.data.seq_len = INT64_MAX; }},
    {"empty_file", 205, {"a.txt", "0 tokens", "needs 5"}, file("text", "a.txt", "")},
    {"short_file", 205, {"a.txt", "4 tokens", "needs 5"}, file("text", "a.txt", "abcd")},
    {"short_eval_file",
     205,
     {"data.eval_path", "3 tokens"},
     [](auto& f, auto& r) {
       file("text", "a.txt", std::string(100, 'x'))(f, r);
       r.data.eval_path = f.write("eval.txt", "abc");
     }},
    {"no_documents", 205, {"0 tokens"}, file("jsonl", "a.jsonl", "\n  \n\r\n")},
    {"vocab_below_the_data", 206, {"model.vocab = 100", "137"}, [](auto&, auto& r) { r.model.vocab = 100; }},
    {"unknown_tokenizer", 207, {"gpt2", "bytes"}, [](auto&, auto& r) { r.data.tokenizer = "gpt2"; }},

    {"not_json",
     210,
     {"a.jsonl line 2", "byte 47"},
     file("jsonl", "a.jsonl", kLine + "\n{\"text\": oops}\n")},
    {"cut_off_json", 210, {"line 1"}, file("jsonl", "a.jsonl", "{\"text\": \"never clos")},
    {"two_values", 210, {"line 1"}, file("jsonl", "a.jsonl", kLine + kLine)},
    {"not_utf8", 210, {"line 2"}, file("jsonl", "a.jsonl", kLine + "\n{\"text\": \"\xff\xfe\"}\n")},
    {"a_null_byte", 210, {"line 1"}, file("jsonl", "a.jsonl", std::string("{\"text\"\0: 1}", 12))},
    {"deep_nesting", 210, {"line 1"}, file("jsonl", "a.jsonl", std::string(1'000'000, '['))},
    {"an_array",
     211,
     {"line 3", "byte 76", "not a JSON object"},
     file("jsonl", "a.jsonl", kLine + "\n" + kLine + "\n[\"text\"]")},
    {"no_field",
     212,
     {"line 1", "\"text\"", "\"id\", \"body\"", "data.field"},
     file("jsonl", "a.jsonl", R"({"id": 1, "body": "b", "inner": {"text": "not this one"}})")},
    {"a_number", 213, {"line 1", "\"text\"", "not a string"}, file("jsonl", "a.jsonl", R"({"text": 5})")},
    {"an_object_as_text", 213, {"line 1"}, file("jsonl", "a.jsonl", R"({"text": {"text": "inner"}})")},

    {"wider_tokens_without_a_header",
     234,
     {"a.bin", "32 or 64 bits", "llm.c"},
     [](auto& f, auto& r) {
       std::vector<uint32_t> tokens;
       for (uint32_t i = 0; i < 500; ++i) tokens.push_back(i * 251);
       file("tokens", "a.bin", bytes_of<uint32_t>(tokens))(f, r);
     }},
    {"truncated_tokens",
     230,
     {"a.bin", "byte 1043", "10 tokens", "1044 bytes"},
     file("tokens", "a.bin", kLlmc + std::string(19, '\1'))},
    {"surplus_tokens", 230, {"a.bin", "byte 1046"}, file("tokens", "a.bin", kLlmc + std::string(22, '\1'))},
    {"truncated_header", 230, {"a.bin", "byte 1000"}, file("tokens", "a.bin", kLlmc.substr(0, 1000))},
    {"only_the_magic", 230, {"a.bin", "byte 4"}, file("tokens", "a.bin", kLlmc.substr(0, 4))},
    {"negative_count", 230, {"-1 tokens"}, file("tokens", "a.bin", token_header(20240520, 1, -1))},
    {"lying_count",
     230,
     {"2147483647 tokens"},
     file("tokens", "a.bin", token_header(20240801, 7, INT32_MAX))},
    {"other_version",
     231,
     {"a.bin", "version 9", "version 7", "Llama-3"},
     file("tokens", "a.bin", token_header(20240801, 9, 0))},
    {"token_beyond_the_vocab",
     232,
     {"a.bin", "token 700", "byte 14", "model.vocab = 700"},
     [](auto& f, auto& r) {
       file("tokens", "a.bin", bytes_of<uint16_t>({1, 2, 3, 4, 5, 6, 699, 700, 900}))(f, r);
       r.model.vocab = 700;
     }},
    {"token_beyond_the_vocab_after_a_header",
     232,
     {"token 7", "byte 1026"},
     [](auto& f, auto& r) {
       file("tokens", "a.bin", token_header(20240520, 1, 6) + bytes_of<uint16_t>({1, 7, 3, 4, 5, 6}))(f, r);
       r.model.vocab = 7;
     }},
    {"no_vocab_is_that_large",
     232,
     {"token 4294967295", "byte 1032"},
     file("tokens", "a.bin", token_header(20240801, 7, 5) + bytes_of<uint32_t>({1, 2, UINT32_MAX, 4, 5}))},
    {"odd_raw_file", 233, {"a.bin", "byte 12"}, file("tokens", "a.bin", std::string(13, '\1'))},
};

class OpenDataset : public testing::TestWithParam<Fault> {};

TEST_P(OpenDataset, Refuses) {
  const Fault& fault = GetParam();
  const TestFolder folder;
  recipe::Recipe recipe;
  recipe.data.seq_len = 4;
  fault.make(folder, recipe);
  try {
    open_dataset(recipe);
    FAIL() << "was opened";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.number(), fault.number) << error.what();
    for (const std::string& part : fault.says) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no '" << part << "' in: " << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, OpenDataset, testing::ValuesIn(kFaults),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(OpenDatasetTest, OpensEveryKind) {
  const TestFolder folder;
  const struct {
    std::string kind, path;
    int64_t vocab;
  } rows[] = {{"grammar", "", 137},
              {"text", folder.write("a.txt", "hello world"), 256},
              {"jsonl", folder.write("a.jsonl", kLine), 257},
              {"tokens", folder.write("a.bin", bytes_of<uint16_t>({5, 6, 7, 8, 9})), 10}};
  for (const auto& row : rows) {
    recipe::Recipe recipe;
    recipe.data.kind = row.kind;
    recipe.data.path = row.path;
    recipe.data.seq_len = 4;
    const std::unique_ptr<Dataset> dataset = open_dataset(recipe);
    EXPECT_EQ(dataset->vocab(), row.vocab) << row.kind;
    EXPECT_GE(dataset->samples(Split::train), 1) << row.kind;
    EXPECT_TRUE(dataset->describe().starts_with(row.kind)) << dataset->describe();
    EXPECT_EQ(dataset->content_hash(), open_dataset(recipe)->content_hash()) << row.kind;
    EXPECT_EQ(dataset->entropy_floor().has_value(), row.kind == "grammar");
  }
}

// The grammar of a recipe is the one of its seed, and reads samples as long as the recipe says.
// Terabytes are not read before the first step: their tokens are checked as samples are read.
TEST(OpenDatasetTest, LargeTokenFilesAreCheckedAsTheyAreRead) {
  const TestFolder folder;
  recipe::Recipe recipe;
  recipe.data.kind = "tokens";
  std::vector<uint16_t> start(4096, 7);
  start[0] = 65535;
  recipe.data.path = folder.write("large.bin", bytes_of<uint16_t>(start));
  recipe.data.seq_len = 4;
  recipe.data.eval_fraction = 0;
  recipe.model.vocab = 100;
  std::filesystem::resize_file(recipe.data.path, size_t{1} << 40);  // sparse: takes no room
  const std::unique_ptr<Dataset> data = open_dataset(recipe);
  std::vector<int32_t> inputs(4), labels(4);
  data->read(Split::train, 1, inputs, labels);
  EXPECT_EQ(inputs, std::vector<int32_t>(4, 7));
  try {
    data->read(Split::train, 0, inputs, labels);
    ADD_FAILURE() << "a token that has no row";
  } catch (const base::DataError& error) {
    EXPECT_NE(std::string(error.what()).find("sample 0 contains token 65535"), std::string::npos)
        << error.what();
  }
  recipe.model.vocab = recipe::AutoInt{};
  try {
    open_dataset(recipe);
    ADD_FAILURE() << "a vocabulary out of a terabyte";
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("set model.vocab"), std::string::npos) << error.what();
  }
}

TEST(OpenDatasetTest, TheGrammarIsTheRecipes) {
  for (const int64_t seed : {7, 8}) {
    recipe::Recipe recipe;
    recipe.data.grammar_seed = seed;
    recipe.data.seq_len = 20;
    const std::unique_ptr<Dataset> opened = open_dataset(recipe);
    const Grammar grammar(static_cast<uint64_t>(seed), 20);
    std::vector<int32_t> inputs(20), labels(20), expected_inputs(20), expected(20);
    opened->read(Split::train, 3, inputs, labels);
    grammar.read(Split::train, 3, expected_inputs, expected);
    EXPECT_EQ(labels, expected) << seed;
    EXPECT_EQ(opened->entropy_floor(), grammar.entropy_floor()) << seed;
  }
}

// Whatever bytes a file holds: it opens with all its tokens in the vocabulary, or is refused in words.
TEST(OpenDatasetTest, SurvivesDamagedFiles) {
  const uint32_t seed = 20250101;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const TestFolder folder;
  const struct {
    std::string kind, content;
  } rows[] = {{"jsonl", kLine + "\n" + R"({"id": [1, {"text": null}], "text": "caf\u00e9 \ud83d\ude00"})" +
                            "\n" + kLine},
              {"tokens", token_header(20240520, 1, 40) + std::string(80, '\1')},
              {"tokens", token_header(20240801, 7, 20) + std::string(80, '\1')},
              {"text", std::string(50, 'a')}};
  for (int round = 0; round < 500; ++round) {
    const auto& row = rows[random() % 4];
    std::string content = row.content;
    for (uint32_t changes = random() % 4; changes > 0; --changes)
      content[random() % content.size()] = static_cast<char>(random());
    if (random() % 3 == 0) content.resize(random() % content.size());
    recipe::Recipe recipe;
    recipe.data.kind = row.kind;
    recipe.data.path = folder.write("damaged", content);
    recipe.data.seq_len = 4;
    try {
      const std::unique_ptr<Dataset> dataset = open_dataset(recipe);
      std::vector<int32_t> inputs(4), labels(4);
      for (int64_t i = 0; i < dataset->samples(Split::train); ++i) {
        dataset->read(Split::train, i, inputs, labels);
        for (const int32_t token : labels)
          ASSERT_TRUE(token >= 0 && token < dataset->vocab()) << "round " << round;
        dataset->decode(labels);
      }
    } catch (const base::DataError&) {
    }
  }
}

}  // namespace
}  // namespace lockstep::data

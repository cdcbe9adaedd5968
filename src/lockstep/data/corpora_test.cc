// Files of other libraries (tools/samples/corpora.py), read as documents and as data to train on; and what is
// wrong with them after somebody has touched them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/data/arrow/columns.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/documents/packing_testing.h"
#include "lockstep/data/formats/files.h"
#include "lockstep/data/formats/megatron.h"
#include "lockstep/data/formats/records.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

const std::string kSamples = LOCKSTEP_SOURCE "/tools/samples/corpora";

std::string sample(const std::string& name) { return kSamples + "/" + name; }

struct Found {
  std::vector<std::string> texts, bad;
  std::vector<std::vector<int32_t>> tokens;
};

Found read_one(const std::string& file, const CorpusOptions& options) {
  Found found;
  const auto reader = open_corpus(file, options);
  while (const auto part = reader->next_part())
    reader->each_document(
        *part,
        [&](const Document& one) {
          if (reader->holds_tokens()) {
            found.tokens.emplace_back(one.tokens.begin(), one.tokens.end());
          } else {
            found.texts.emplace_back(one.text);
          }
        },
        [&](const BadDocument& one) { found.bad.push_back(one.sentence); });
  return found;
}

Found read_all(const std::string& path, const CorpusOptions& options = {}) {
  Found found;
  for (const std::string& file : find_files({.key = "data.path", .path = path}).files) {
    const Found one = read_one(file, options);
    found.texts.insert(found.texts.end(), one.texts.begin(), one.texts.end());
    found.bad.insert(found.bad.end(), one.bad.begin(), one.bad.end());
    found.tokens.insert(found.tokens.end(), one.tokens.begin(), one.tokens.end());
  }
  return found;
}

bool needs_arrow(const std::string& name) {
  return name.find("parquet") != std::string::npos || name.find("arrow") != std::string::npos ||
         name.find("feather") != std::string::npos || name.starts_with("saved");
}

struct Sample {
  const char* name;
  const char* kind;
};
constexpr Sample kSameTexts[] = {
    {"string.parquet", "parquet"},
    {"large.parquet", "parquet"},
    {"view.parquet", "parquet"},
    {"dictionary.parquet", "parquet"},
    {"gzip.parquet", "parquet"},
    {"zstd.parquet", "parquet"},
    {"brotli.parquet", "parquet"},
    {"lz4.parquet", "parquet"},
    {"none.parquet", "parquet"},
    {"string.arrow", "arrow"},
    {"large.arrow", "arrow"},
    {"view.arrow", "arrow"},
    {"dictionary.arrow", "arrow"},
    {"string.arrows", "arrow"},
    {"large.arrows", "arrow"},
    {"view.arrows", "arrow"},
    {"dictionary.arrows", "arrow"},
    {"packed.feather", "arrow"},
    {"saved", "arrow"},
    {"saved/train", "arrow"},
    {"mds", "mds"},
    {"mds-zstd", "mds"},
    {"mds-gz", "mds"},
    {"mds/index.json", "mds"},
};

TEST(Corpora, EveryFormatHoldsTheSameTexts) {
  const std::vector<std::string> expected = read_all(sample("texts.jsonl")).texts;
  ASSERT_EQ(expected.size(), 7u);
  for (const Sample& row : kSameTexts) {
    if (needs_arrow(row.name) && !has_arrow()) continue;
    SCOPED_TRACE(row.name);
    EXPECT_EQ(infer_kind(sample(row.name)), row.kind);
    for (const size_t part : {size_t{1}, size_t{40}, size_t{1} << 20}) {
      const Found found = read_all(sample(row.name), {.part = part});
      EXPECT_EQ(found.texts, expected);
      EXPECT_TRUE(found.bad.empty());
    }
  }
}

// As bytes, with an end behind each document: what JSONL of the same texts gives.
TEST(Corpora, TrainOnTheSameTokens) {
  recipe::Recipe recipe;
  recipe.data.seq_len = 8;
  recipe.data.eval_fraction = 0;
  recipe.data.path = sample("texts.jsonl");
  const auto expected = open_dataset(recipe);
  for (const Sample& row : kSameTexts) {
    if (needs_arrow(row.name) && !has_arrow()) continue;
    SCOPED_TRACE(row.name);
    recipe.data.path = sample(row.name);
    const auto data = open_dataset(recipe);
    ASSERT_EQ(data->samples(Split::train), expected->samples(Split::train));
    EXPECT_EQ(data->vocab(), 257);
    std::vector<int32_t> a(8), b(8), labels(8);
    for (int64_t i = 0; i < data->samples(Split::train); ++i) {
      data->read(Split::train, i, a, labels);
      expected->read(Split::train, i, b, labels);
      EXPECT_EQ(a, b) << i;
    }
  }
}

TEST(Corpora, ColumnsOfNumbersAreTokens) {
  const std::vector<std::vector<int32_t>> expected = {{1, 2, 3}, {4}, {500, 70000}, {5, 6, 7, 8}};
  for (const auto& [name, field] : std::initializer_list<std::pair<const char*, const char*>>{
           {"tokens.parquet", "input_ids"}, {"mds-int32", "tokens"}, {"mds-any", "tokens"}}) {
    if (needs_arrow(name) && !has_arrow()) continue;
    EXPECT_EQ(read_all(sample(name), {.field = field}).tokens, expected) << name;
    recipe::Recipe recipe;
    recipe.data.seq_len = 9;
    recipe.data.field = field;
    recipe.data.path = sample(name);
    const auto data = open_dataset(recipe);
    EXPECT_EQ(data->vocab(), 70001) << name;
    std::vector<int32_t> inputs(9), labels(9);
    data->read(Split::train, 0, inputs, labels);
    EXPECT_EQ(inputs, (std::vector<int32_t>{1, 2, 3, 4, 500, 70000, 5, 6, 7})) << name;
    recipe.model.vocab = 600;
    EXPECT_NE(base::refusal(232, [&] { open_dataset(recipe); }).find("70000"), std::string::npos);
  }
}

TEST(Corpora, NullsAreCountedOrStopTheRun) {
  if (!has_arrow()) GTEST_SKIP() << "no Arrow in this build";
  const Found found = read_all(sample("nulls.parquet"));
  EXPECT_EQ(found.texts, (std::vector<std::string>{"kept", "also kept"}));
  ASSERT_EQ(found.bad.size(), 2u);
  EXPECT_NE(found.bad[1].find("nulls.parquet row 3"), std::string::npos) << found.bad[1];
  recipe::Recipe recipe;
  recipe.data.seq_len = 4;
  recipe.data.path = sample("nulls.parquet");
  EXPECT_NE(base::refusal(278, [&] { open_dataset(recipe); }).find("data.on_error=skip"), std::string::npos);
  recipe.data.on_error = "skip";
  const auto data = open_dataset(recipe);
  EXPECT_NE(data->describe().find("2 documents skipped"), std::string::npos) << data->describe();
  ASSERT_EQ(data->remarks().size(), 2u);
  EXPECT_NE(data->remarks()[0].find("row 1"), std::string::npos);
}

TEST(Corpora, ColumnsTellWhatRowsAre) {
  if (!has_arrow()) GTEST_SKIP() << "no Arrow in this build";
  for (const char* name : {"preferences.parquet", "preferences.arrow", "preferences.arrows"})
    EXPECT_EQ(infer_kind(sample(name)), "preference") << name;
  EXPECT_EQ(infer_kind(sample("string.parquet")), "parquet");
  EXPECT_EQ(infer_kind(sample("string.arrows")), "arrow");
}

TEST(Corpora, NullsOfTokensAreCountedToo) {
  if (!has_arrow()) GTEST_SKIP() << "no Arrow in this build";
  recipe::Recipe recipe;
  recipe.data.seq_len = 4;
  recipe.data.eval_fraction = 0;
  recipe.data.path = sample("token-nulls.parquet");
  recipe.data.field = "input_ids";
  recipe.data.on_error = "skip";
  const auto data = open_dataset(recipe);
  EXPECT_EQ(data->samples(Split::train), 2);
  EXPECT_NE(data->describe().find("1 document skipped"), std::string::npos) << data->describe();
  ASSERT_EQ(data->remarks().size(), 1u);
  EXPECT_NE(data->remarks()[0].find("row 2"), std::string::npos) << data->remarks()[0];
}

TEST(Corpora, ColumnsThatAreNoTextAreRefusedByName) {
  if (!has_arrow()) GTEST_SKIP() << "no Arrow in this build";
  const auto open = [](const char* name, const char* field) { open_corpus(sample(name), {.field = field}); };
  EXPECT_NE(base::refusal(213, [&] { open("nulls.parquet", "number"); }).find("int64"), std::string::npos);
  EXPECT_NE(base::refusal(213, [&] { open("nulls.parquet", "nested"); }).find("struct"), std::string::npos);
  EXPECT_NE(
      base::refusal(212, [&] { open("nulls.parquet", "body"); }).find("\"text\", \"number\", \"nested\""),
      std::string::npos);
  EXPECT_NE(base::refusal(212, [&] { open("string.arrows", "body"); }).find("\"id\", \"text\""),
            std::string::npos);
  EXPECT_NE(base::refusal(213, [&] { open_corpus(sample("mds/index.json"), {.field = "id"}); }).find("int"),
            std::string::npos);
  EXPECT_TRUE(read_all(sample("empty.parquet")).texts.empty());
}

// Bytes that somebody changed: every file is read, or refused with a sentence. Never a crash, never more
// memory than there is.
TEST(Corpora, DamagedFilesAreReadOrRefused) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  TestFolder folder;
  int refused = 0, tried = 0;
  for (const Sample& row : kSameTexts) {
    if (fs::is_directory(sample(row.name)) || std::string(row.name).starts_with("mds")) continue;
    if (!has_arrow()) break;
    const std::string whole = base::try_read_file(sample(row.name)).text;
    for (int round = 0; round < 40; ++round, ++tried) {
      std::string bytes = whole;
      if (round % 4 == 0) bytes.resize(random() % bytes.size());
      for (uint64_t n = 1 + random() % 4; n > 0 && !bytes.empty(); --n)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      const std::string file = folder.write(row.name, bytes);
      try {
        read_one(file, {});
      } catch (const base::Error& error) {
        ++refused;
        EXPECT_NE(std::string(error.what()).find(folder.path()), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_GE(refused * 4, tried);
}

TEST(Corpora, DamagedMdsFoldersAreReadOrRefused) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  TestFolder folder;
  int refused = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    const char* name =
        std::initializer_list<const char*>{"mds", "mds-zstd", "mds-int32", "mds-any"}.begin()[round % 4];
    const fs::path copy = folder / "copy";
    fs::remove_all(copy);
    fs::copy(sample(name), copy);
    std::vector<fs::path> files(fs::directory_iterator(copy), fs::directory_iterator{});
    const std::string file = files[random() % files.size()].string();
    std::string bytes = base::try_read_file(file).text;
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    for (uint64_t n = 1 + random() % 3; n > 0 && !bytes.empty(); --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    std::ofstream(file, std::ios::binary) << bytes;
    try {
      read_one((copy / "index.json").string(), {.field = round % 4 < 2 ? "text" : "tokens"});
    } catch (const base::Error&) {
      ++refused;
    }
  }
  EXPECT_GE(refused, kRounds / 10);
}

TEST(Corpora, AnIndexNamesOnlyFilesBesideIt) {
  TestFolder folder;
  for (const char* name : {"../../etc/passwd", "/etc/passwd", "a/../../passwd", "..", "a/"}) {
    std::string index = base::try_read_file(sample("mds/index.json")).text;
    index.replace(index.find("shard.00000.mds"), 15, name);
    folder.write("index.json", index);
    EXPECT_EQ(base::number_of_refusal([&] { read_one(folder / "index.json", {}); }), 279) << name;
  }
  folder.write("saved/dataset_info.json", "{}");
  folder.write("saved/state.json", R"({"_data_files": [{"filename": "../x.arrow"}]})");
  EXPECT_EQ(base::number_of_refusal([&] { find_files({.key = "data.path", .path = folder / "saved"}); }),
            282);
  folder.write("dict/dataset_dict.json", R"({"splits": ["validation", "test"]})");
  EXPECT_NE(base::refusal(282, [&] { find_files({.key = "data.path", .path = folder / "dict"}); })
                .find("validation, test"),
            std::string::npos);
}

// What merge_index() of MosaicML's library writes over the folders of several writers.
TEST(Corpora, AnMdsIndexMayListFoldersBelowIt) {
  TestFolder folder;
  fs::copy(sample("mds"), folder / "0");
  std::string index = base::try_read_file(sample("mds/index.json")).text;
  for (size_t at = 0; (at = index.find("\"shard.", at)) != std::string::npos; at += 2)
    index.insert(at + 1, "0/");
  folder.write("index.json", index);
  EXPECT_EQ(find_files({.key = "data.path", .path = folder.path()}).files,
            std::vector<std::string>{folder / "index.json"});
  EXPECT_EQ(read_one(folder / "index.json", {}).texts, read_one(sample("mds/index.json"), {}).texts);
}

// Megatron's layout, by its documentation: magic, version, type, counts, lengths, places, documents.
std::string megatron_index(uint8_t type, int width, const std::vector<int32_t>& lengths) {
  std::vector<int64_t> places, documents = {0};
  int64_t at = 0;
  for (const int32_t length : lengths) {
    places.push_back(at);
    at += int64_t{length} * width;
    documents.push_back(static_cast<int64_t>(places.size()));
  }
  return std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) + static_cast<char>(type) +
         bytes_of<uint64_t>({lengths.size(), documents.size()}) + bytes_of(lengths) + bytes_of(places) +
         bytes_of(documents);
}

TEST(Megatron, ItsTokensAreOneStream) {
  TestFolder folder;
  folder.write("m/corpus_text_document.bin", bytes_of<int32_t>({7, 8, 9, 100000, 1}));
  folder.write("m/corpus_text_document.idx", megatron_index(4, 4, {3, 2}));
  for (const char* path :
       {"m", "m/corpus_text_document", "m/corpus_text_document.bin", "m/corpus_text_document.idx", "m/*"}) {
    recipe::Recipe recipe;
    recipe.data.seq_len = 4;
    recipe.data.path = folder / path;
    const auto data = open_dataset(recipe);
    EXPECT_EQ(data->vocab(), 100001) << path;
    std::vector<int32_t> inputs(4), labels(4);
    data->read(Split::train, 0, inputs, labels);
    EXPECT_EQ(inputs, (std::vector<int32_t>{7, 8, 9, 100000}));
    EXPECT_EQ(labels[3], 1);
    EXPECT_EQ(data->describe().find("skipped"), std::string::npos) << data->describe();
  }
}

TEST(Megatron, AnIndexThatLiesIsRefused) {
  const std::string good = megatron_index(8, 2, {3, 2}), bin(10, '\1');
  struct Row {
    std::string index;
    std::string bin;
    const char* says;
  };
  std::string many = good, version = good, shifted = good;
  many[18 + 5] = '\x7f';
  version[9] = 2;
  shifted[34 + 8 + 8] = 1;
  for (const Row& row : std::initializer_list<Row>{
           {good.substr(0, 20), bin, "less than its header"},
           {many, bin, "more than its"},
           {version, bin, "version 2"},
           {shifted, bin, "without gaps"},
           {megatron_index(7, 4, {3, 2}), bin, "float32"},
           {good, bin + "xx", "has 12"},
           {megatron_index(8, 2, {-1, 6}), bin, "-1 tokens"},
       }) {
    TestFolder folder;
    const std::string file = folder.write("a.bin", row.bin), index = folder.write("a.idx", row.index);
    const std::string said = base::refusal(280, [&] { open_megatron(file, megatron_index_of(file)); });
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
  }
}

TEST(Corpora, CompressedFilesAreWhatTheyHold) {
  TestFolder folder;
  const std::string line = "{\"text\": \"x\"}\n";
  for (const auto& [name, bytes, kind] :
       std::initializer_list<std::tuple<const char*, std::string, const char*>>{
           {"a.jsonl.gz", gzip(line), "jsonl"},
           {"a.ndjson.zst", zstd(line), "jsonl"},
           {"a.txt.gz", gzip("plain"), "text"},
           {"a.zst", zstd("plain"), "text"},
           {"a.csv.gz", gzip("text\nx\n"), "csv"},
           {"a.json.gz", gzip(line), "jsonl"}}) {
    EXPECT_EQ(infer_kind(folder.write(name, bytes)), kind) << name;
  }
  recipe::Recipe recipe;
  recipe.data.seq_len = 4;
  recipe.data.path = folder.write("b.txt.gz", gzip("some text and more"));
  const auto data = open_dataset(recipe);
  std::vector<int32_t> inputs(4), labels(4);
  data->read(Split::train, 0, inputs, labels);
  EXPECT_EQ(data->decode(inputs), "some");
  EXPECT_EQ(base::number_of_refusal([&] { open_corpus(folder.write("a.parquet.gz", gzip("PAR1")), {}); }),
            236);
}

// Objects line by line are documents whatever the file is called; one JSON document is refused, not read as
// its text.
TEST(Corpora, JsonFilesAreReadByTheirContent) {
  const TestFolder folder;
  const std::string lines = "{\"text\": \"some text and more\"}\n{\"text\": \"b\"}\n";
  for (const std::string& file : {folder.write("a.json", lines), folder.write("b.json.gz", gzip(lines)),
                                  folder.write("c.JSON", lines)}) {
    recipe::Recipe recipe;
    recipe.data.seq_len = 4;
    recipe.data.path = file;
    recipe.data.eval_fraction = 0;
    const auto data = open_dataset(recipe);
    std::vector<int32_t> inputs(4), labels(4);
    data->read(Split::train, 0, inputs, labels);
    EXPECT_EQ(data->decode(inputs), "some") << file;
  }
  const std::string one = folder.write("d.json", "[{\"text\": \"a\"}]");
  EXPECT_EQ(base::number_of_refusal([&] { open_corpus(one, {}); }), 236);
  EXPECT_NE(open_corpus(one, {.as_text = true}), nullptr);
  EXPECT_NE(open_corpus(folder.write("e.json", "no JSON at all"), {}), nullptr);
}

// data.kind = "text" with a tokenizer means a file's bytes, whatever it is called.
TEST(Corpora, TextIsTextWhateverItsNameEndsWith) {
  const TestFolder folder;
  const std::string lines = "{\"text\": \"some\"}\n";
  for (const char* name : {"a.jsonl", "a.csv", "a.tsv", "a.json", "index.json", "a.txt"}) {
    EXPECT_EQ(read_one(folder.write(name, lines), {.as_text = true}).texts, std::vector<std::string>{lines})
        << name;
  }
  EXPECT_EQ(read_one(folder.write("a.jsonl.gz", gzip(lines)), {.as_text = true}).texts,
            std::vector<std::string>{lines});
  const std::string archive = folder.write("a.csv", "PK\x03\x04 and more");
  EXPECT_EQ(base::number_of_refusal([&] { open_corpus(archive, {.as_text = true}); }), 236);
}

// As PowerShell's > and Excel write: with a mark of the byte order or without.
TEST(Corpora, Utf16IsNamedWithItsRemedy) {
  const TestFolder folder;
  const std::string plain = "{\"text\": \"some\"}\n";
  std::string little, big;
  for (const char c : plain) little += {c, '\0'}, big += {'\0', c};
  for (const auto& [bytes, name] :
       std::initializer_list<std::pair<std::string, std::string>>{{"\xff\xfe" + little, "UTF-16 "},
                                                                  {"\xfe\xff" + big, "UTF-16 "},
                                                                  {little, "UTF-16LE "},
                                                                  {big, "UTF-16BE "}}) {
    for (const char* ending : {".jsonl", ".csv", ".txt", ".json", ".jsonl.gz"}) {
      const std::string file = std::string("a") + ending;
      const std::string path = folder.write(file, file.ends_with("gz") ? gzip(bytes) : bytes);
      const std::string said = base::refusal(236, [&] { open_corpus(path, {}); });
      EXPECT_NE(said.find("`iconv -f " + name + "-t UTF-8`"), std::string::npos) << file << ": " << said;
    }
    EXPECT_EQ(base::number_of_refusal([&] { RecordFile{folder.write("chat.jsonl", bytes)}; }), 236);
    EXPECT_EQ(base::number_of_refusal([&] { infer_kind(folder.write("a.txt", bytes), true, "text"); }), 236);
  }
  EXPECT_NE(open_corpus(folder.write("a.txt", std::string("a\0b\0 words", 10)), {}), nullptr);
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/data/kind.h"

#include <gtest/gtest.h>

#include "lockstep/base/refusal.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

struct File {
  const char* name;
  std::string bytes;
};
const File kText = {"book.txt", "Once upon a time\n"}, kMarkdown = {"README.md", "# Notes\n"},
           kBare = {"input", "plain text in a file without an ending"},
           kJsonl = {"a.jsonl", "{\"text\": \"x\"}\n"},
           kLines = {"lines.json", "{\"text\": \"x\"}\n{\"text\": \"y\"}\n"},
           kDocument = {"one.json", "{\n  \"text\": \"x\"\n}\n"}, kList = {"list.json", "[{\"text\": 1}]\n"},
           kTokens = {"train.bin", std::string(64, '\1')}, kNpy = {"tokens.npy", "\x93NUMPY\x01"},
           kRenamed = {"tokens.dat", "\x93NUMPY\x01"}, kBinary = {"weights.dat", std::string(64, '\0')},
           kBzip = {"book.txt.bz2", "BZh91AY"}, kParquet = {"train.parquet", "PAR1xxxx"},
           kEmpty = {"empty.txt", ""};

// Files in a folder; "" names the folder itself.
std::string written(const TestFolder& folder, const std::vector<File>& files, const std::string& name) {
  for (const File& file : files) folder.write(file.name, file.bytes);
  return name.empty() ? folder.path() : folder / name;
}

TEST(Kind, IsWhatTheFilesAre) {
  struct Row {
    std::vector<File> files;
    const char* name;
    const char* kind;
  };
  for (const Row& row : std::initializer_list<Row>{
           {{kText}, "book.txt", "text"},
           {{kBare}, "input", "text"},
           {{kMarkdown, kText, kBare}, "", "text"},
           {{kJsonl}, "a.jsonl", "jsonl"},
           {{kLines}, "lines.json", "jsonl"},
           {{kJsonl, kText}, "*.jsonl", "jsonl"},
           {{kTokens}, "train.bin", "tokens"},
           {{kTokens, kNpy}, "", "tokens"},
           {{kRenamed}, "tokens.dat", "tokens"},
           {{kEmpty, kJsonl}, "", "jsonl"},
           {{kEmpty}, "empty.txt", "text"},
       }) {
    TestFolder folder;
    EXPECT_EQ(infer_kind(written(folder, row.files, row.name)), row.kind) << row.files[0].name;
  }
  EXPECT_EQ(infer_kind(""), "grammar");
  EXPECT_EQ(infer_kind("absent.bin", false), "tokens");
  EXPECT_EQ(infer_kind("absent.txt", false), "text");
}

TEST(Kind, IsRefusedWhereItCannotBeTold) {
  struct Row {
    std::vector<File> files;
    const char* name;
    const char* says;
  };
  for (const Row& row : std::initializer_list<Row>{
           {{kText, kJsonl}, "", "several kinds, jsonl ("},
           {{kTokens, kMarkdown}, "", "set data.kind"},
           {{kBinary}, "weights.dat", "is not text"},
           {{kDocument}, "one.json", "a single JSON document"},
           {{kList}, "list.json", "a single JSON document"},
           {{kBzip}, "book.txt.bz2", "bzip2"},
           {{kParquet, kJsonl}, "", "parquet ("},
       }) {
    TestFolder folder;
    const std::string path = written(folder, row.files, row.name);
    const std::string said = base::refusal(208, [&] { infer_kind(path); });
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
  }
  EXPECT_EQ(base::number_of_refusal([] { infer_kind("absent.txt"); }), 202);
}

TEST(Kind, OpensWhatItFinds) {
  TestFolder folder;
  recipe::Recipe recipe;
  recipe.data.seq_len = 4;
  recipe.data.path = written(folder, {kText}, "book.txt");
  EXPECT_TRUE(open_dataset(recipe)->describe().starts_with("text ")) << open_dataset(recipe)->describe();
  recipe.data.path = "";
  EXPECT_TRUE(open_dataset(recipe)->describe().starts_with("grammar "));
}

TEST(Kind, GrammarReadsNoFile) {
  TestFolder folder;
  const std::string path = written(folder, {kText}, "book.txt");
  recipe::Resolved said = recipe::read_recipe({.overrides = {"data.kind=grammar", "data.path=" + path}});
  EXPECT_NE(base::refusal(209, [&] { resolve_kind(said); }).find("data.kind=auto"), std::string::npos);
  recipe::Resolved left = recipe::read_recipe({.default_recipe = true, .overrides = {"data.path=" + path}});
  resolve_kind(left);
  EXPECT_EQ(left.recipe.data.kind, "text");
  EXPECT_EQ(left.origin.at("data.kind"), "auto");
}

}  // namespace
}  // namespace lockstep::data

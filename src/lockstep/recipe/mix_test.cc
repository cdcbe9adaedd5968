#include "lockstep/recipe/mix.h"

#include <gtest/gtest.h>

#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {
namespace {

TEST(ReadMix, KnowsEveryWayToWriteASource) {
  struct Row {
    const char* text;
    const char* path;
    const char* name;
    double weight;  // 0: none
    int64_t epochs;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"web=0.7", "web", "web", 0.7, 0},
           {"data/web/=7", "data/web/", "web", 7, 0},
           {"web/*.parquet=0.5", "web/*.parquet", "web", 0.5, 0},
           {"a=b/books.jsonl.zst=2", "a=b/books.jsonl.zst", "books", 2, 0},
           {"books.jsonl", "books.jsonl", "books", 0, 0},
           {"path=my data/web weight=0.7 name=the web", "my data/web", "the web", 0.7, 0},
           {"epochs=2 name=x path=a\\,b.txt weight=1", "a,b.txt", "x", 1, 2},
       }) {
    const std::vector<MixSource> read = read_mix(row.text);
    ASSERT_EQ(read.size(), 1u) << row.text;
    EXPECT_EQ(read[0].path, row.path) << row.text;
    EXPECT_EQ(read[0].name, row.name) << row.text;
    EXPECT_EQ(read[0].weight.value_or(0), row.weight) << row.text;
    EXPECT_EQ(read[0].epochs.value_or(0), row.epochs) << row.text;
    EXPECT_EQ(write_mix(read_mix(write_mix(read))), write_mix(read)) << row.text;
  }
}

TEST(ReadMix, SaysWhatIsWrong) {
  for (const auto& [text, says] : std::initializer_list<std::pair<const char*, const char*>>{
           {"web=0", "above 0"},
           {"web=nan", "above 0"},
           {"path=web wieght=0.7", "did you mean weight?"},
           {"wieght=0.7x path=web", "did you mean weight?"},
           {"weight=0.7", "no path"},
           {"a/web=1, b/web=1", "another source"},
           {"a=1, b", "give one to each"},
           {"path=a epochs=0", "integer"},
           {"path=a epochs=1.5", "integer"},
           {" , ", "no source"},
       }) {
    const std::string said = base::refusal(148, [&] { read_mix(text); });
    EXPECT_NE(said.find(says), std::string::npos) << said;
  }
}

TEST(ReadMix, TablesOfAFileAreSourcesBesideIt) {
  base::TemporaryFolder folder;
  folder.write("web/a.txt", "x");
  const std::string file =
      folder.write("mine.toml",
                   "[[data.mix]]\npath = \"web\"\nweight = 0.7\n"
                   "[[data.mix]]\npath = \"elsewhere, far\"\nweight = 0.3\nepochs = 2\n");
  const Resolved resolved = read_recipe({.file = file});
  const std::vector<MixSource> read = read_mix(resolved.recipe.data.mix);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].path, folder.path() + "/web");
  EXPECT_EQ(read[0].name, "web");
  EXPECT_EQ(read[1].path, "elsewhere, far");
  EXPECT_EQ(read[1].epochs, 2);
}

}  // namespace
}  // namespace lockstep::recipe

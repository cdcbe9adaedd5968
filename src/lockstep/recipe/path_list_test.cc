#include "lockstep/recipe/path_list.h"

#include <gtest/gtest.h>
#include <pwd.h>

#include <cstdlib>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::recipe {
namespace {

using Names = std::vector<std::string>;

TEST(PathList, SplitsAtCommasAndJoinsBack) {
  struct Row {
    const char* text;
    Names paths;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"a.txt", {"a.txt"}},
           {"a.txt,b.txt", {"a.txt", "b.txt"}},
           {" a.txt , b.txt ", {"a.txt", "b.txt"}},
           {",a,,b,", {"a", "b"}},
           {"a\\,b.txt,c", {"a,b.txt", "c"}},
           {"", {}},
           {" , ", {}},
           {"a\\b", {"a\\b"}},
       }) {
    EXPECT_EQ(split_paths(row.text), row.paths) << row.text;
    EXPECT_EQ(split_paths(join_paths(row.paths)), row.paths) << row.text;
  }
  base::TemporaryFolder folder;
  const std::string odd = folder.write("one, with a comma.txt", "x");
  EXPECT_EQ(split_paths(odd), Names{odd}) << "it is there";
}

TEST(PathList, HomeFolders) {
  const char* const before = std::getenv("HOME");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("HOME", "/home/ada", 1);
  EXPECT_EQ(with_home("~"), "/home/ada");
  EXPECT_EQ(with_home("~/data/a.txt"), "/home/ada/data/a.txt");
  EXPECT_EQ(with_home("data/~"), "data/~");
  EXPECT_EQ(with_home("~no such person/x"), "~no such person/x");
  EXPECT_EQ(with_home("~root/x"), std::string(::getpwnam("root")->pw_dir) + "/x");
  before != nullptr ? ::setenv("HOME", kept.c_str(), 1) : ::unsetenv("HOME");
}

// The recipe's folder comes before the working folder, for what is there; anything else is left as it stands.
TEST(PathList, RecipesNameWhatLiesBesideThem) {
  base::TemporaryFolder folder;
  folder.write("beside/a.txt", "x"), folder.write("beside/more/b.txt", "x"), folder.write("other/c.txt", "x");
  const std::string beside = folder.path() + "/beside/";
  struct Row {
    const char* written;
    std::string found;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"\"a.txt\"", beside + "a.txt"},
           {"\"more\"", beside + "more"},
           {"\"more/*.txt\"", beside + "more/*.txt"},
           {"\"../other/c.txt\"", folder.path() + "/other/c.txt"},
           {"[\"a.txt\", \"more\"]", beside + "a.txt," + beside + "more"},
           {"\"a.txt, absent.txt\"", beside + "a.txt,absent.txt"},
           {"\"absent.txt\"", "absent.txt"},
           {"\"absent*.txt\"", "absent*.txt"},
           {"\"/tmp\"", "/tmp"},
       }) {
    const std::string file =
        folder.write("beside/recipe.toml", "[data]\npath = " + std::string(row.written) + "\n");
    EXPECT_EQ(read_recipe({.file = file}).recipe.data.path, row.found) << row.written;
  }
  const std::string file =
      folder.write("beside/recipe.toml", "[model]\nfrom = \"more\"\n[log]\nfolder = \"more\"\n");
  const Resolved read = read_recipe({.file = file, .overrides = {"data.path=a.txt"}});
  EXPECT_EQ(read.recipe.model.from, beside + "more");
  EXPECT_EQ(read.recipe.log.folder, "more") << "what is written goes where the user stands";
  EXPECT_EQ(read.recipe.data.path, "a.txt") << "so do names on the command line";
}

}  // namespace
}  // namespace lockstep::recipe

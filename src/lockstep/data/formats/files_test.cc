#include "lockstep/data/formats/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "lockstep/base/refusal.h"
#include "lockstep/base/text.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

// Names below the folder, with blanks between.
std::string names_of(const std::vector<std::string>& files, const TestFolder& folder) {
  std::vector<std::string> names;
  for (const std::string& file : files)
    names.push_back(file.starts_with(folder.path()) ? file.substr(folder.path().size() + 1) : file);
  return base::join(names, " ");
}

void make_tree(const TestFolder& folder) {
  for (const char* name : {"b.txt", "a.txt", "c.jsonl", "deep/d.txt", "deep/deeper/e.txt", ".hidden/f.txt",
                           ".g.txt", "other/a.txt", "odd [1].txt"})
    folder.write(name, "x");
}

TEST(FindFiles, FindsWhatPeopleName) {
  TestFolder folder;
  make_tree(folder);
  struct Row {
    std::string path;
    const char* files;
  };
  const std::string at = folder.path() + "/";
  for (const Row& row : std::initializer_list<Row>{
           {at + "b.txt", "b.txt"},
           {at + "b.txt," + at + "a.txt", "b.txt a.txt"},
           {at + "b.txt , " + at + "a.txt", "b.txt a.txt"},
           {folder.path(), "a.txt b.txt c.jsonl deep/d.txt deep/deeper/e.txt odd [1].txt other/a.txt"},
           {at + "deep", "deep/d.txt deep/deeper/e.txt"},
           {at + "*.txt", "a.txt b.txt odd [1].txt"},
           {at + "?.txt", "a.txt b.txt"},
           {at + "[ab].*", "a.txt b.txt"},
           {at + "*/a.txt", "other/a.txt"},
           {at + "d*", "deep/d.txt deep/deeper/e.txt"},
           {at + "odd [1].txt", "odd [1].txt"},
           {at + "other/," + at + "*.jsonl", "other//a.txt c.jsonl"},
           {at + "a.txt," + at + "a.txt", "a.txt a.txt"},  // more of it: as asked for
       }) {
    std::string found = names_of(find_files({.key = "data.path", .path = row.path}).files, folder);
    if (const size_t twice = found.find("//"); twice != std::string::npos) found.erase(twice, 1);
    std::string expected = row.files;
    if (const size_t twice = expected.find("//"); twice != std::string::npos) expected.erase(twice, 1);
    EXPECT_EQ(found, expected) << row.path;
  }
}

TEST(FindFiles, LeavesOutAndSaysSo) {
  TestFolder folder;
  make_tree(folder);
  const FoundFiles found = find_files({.key = "data.path", .path = folder.path(), .extensions = {".jsonl"}});
  EXPECT_EQ(names_of(found.files, folder), "c.jsonl");
  EXPECT_EQ(found.left_out.size(), 6u);
  const FoundFiles rest = find_files({.key = "data.path",
                                      .path = folder.path(),
                                      .extensions = {".txt", ".jsonl"},
                                      .excluded = {folder / "deep/../a.txt", folder / "other/a.txt"}});
  EXPECT_EQ(names_of(rest.files, folder), "b.txt c.jsonl deep/d.txt deep/deeper/e.txt odd [1].txt");
  EXPECT_EQ(
      names_of(
          find_files({.key = "data.path", .path = folder / "*.txt", .excluded = {folder / "a.txt"}}).files,
          folder),
      "b.txt odd [1].txt");
}

TEST(FindFiles, HomeFolder) {
  TestFolder folder;
  make_tree(folder);
  const std::string before = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::setenv("HOME", folder.path().c_str(), 1);
  EXPECT_EQ(names_of(find_files({.key = "data.path", .path = "~/[ab].txt,~/deep/d.txt"}).files, folder),
            "a.txt b.txt deep/d.txt");
  ::setenv("HOME", before.c_str(), 1);
}

TEST(FindFiles, FollowsLinksOnce) {
  TestFolder folder;
  make_tree(folder);
  std::filesystem::create_directory_symlink(folder.path(), folder / "deep/up");  // round and round
  std::filesystem::create_directory_symlink(folder / "other", folder / "again");
  const std::string found = names_of(find_files({.key = "data.path", .path = folder.path()}).files, folder);
  size_t count = 0;
  for (size_t at = 0; (at = found.find("/a.txt", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 1u) << found;
}

TEST(FindFiles, Refuses) {
  TestFolder folder;
  make_tree(folder);
  std::filesystem::create_symlink("nowhere", folder / "deep/broken.txt");
  std::filesystem::create_directories(folder / "empty");
  struct Row {
    std::string path;
    int number;
    const char* says;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"", 201, "is empty; set it"},
           {" , ,", 201, "is empty; set it"},
           {folder / "absent.txt", 202, "No such file"},
           {"absent.txt", 202, "next to the recipe"},
           {folder / "*.bin", 202, "no file matches"},
           {folder / "deep", 202, "is a broken symbolic link"},
           {folder / "empty", 203, "contains no file"},
           {folder / "empt*", 203, "contains no file"},
           {"/dev/null", 202, "neither"},
       }) {
    const std::string said =
        base::refusal(row.number, [&] { find_files({.key = "data.path", .path = row.path}); });
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace lockstep::data

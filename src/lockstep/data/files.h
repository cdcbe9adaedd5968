// Which files a data path means: a file, a folder, or a comma-separated list of either.
#pragma once

#include <string>
#include <vector>

namespace lockstep::data {

struct FileQuery {
  std::string key;                      // the recipe's key, for messages: "data.path"
  std::string path;                     // "corpus.txt", "corpus/", "a.bin,b.bin"
  std::string extension;                // in folders, only files that end like this (".bin"); empty: all
  std::vector<std::string> excluded{};  // files to leave out of folders: those held out for evaluation
};

// Files in the order of the list, a folder's in the order of their names, not looking into folders within
// it nor at hidden files. At least one; every one exists and is a regular file.
std::vector<std::string> find_files(const FileQuery& query);

}  // namespace lockstep::data

// Which files a data path means: a file, a folder with all that is in it, a pattern such as data/*.txt, or
// several of these with commas.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/store/store.h"

namespace lockstep::data {

struct FileQuery {
  std::string key;                        // the recipe's key, for messages: "data.path"
  std::string path;                       // "corpus.txt", "corpus/", "a.bin,b.bin", "data/*.jsonl"
  std::vector<std::string> extensions{};  // in folders, only files that end like this (".bin"); empty: all
  std::vector<std::string> excluded{};    // to leave out of folders and patterns: held out for evaluation
  // What lies in a store: all of it is fetched; or, when it is more than is fetched (store/remote_file.h),
  // files are URIs that are read there; or all are URIs, which are fetched one by one (store/in_turn.h).
  // Files that only make sense together are fetched in any case.
  enum class Remote : uint8_t { fetched, streamed, in_turn };
  Remote remote = Remote::fetched;
};

struct FoundFiles {
  // In the order of the list; those of a folder or a pattern in the order of their names. At least one; every
  // one exists and is a regular file.
  std::vector<std::string> files;
  std::vector<std::string> left_out;             // of folders, because of how they end
  std::map<std::string, store::Object> objects;  // of those that are URIs
};

// Folders are walked, links followed, hidden files and folders left out.
FoundFiles find_files(const FileQuery& query);

}  // namespace lockstep::data

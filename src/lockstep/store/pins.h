// Which copies of a cache are in use, and by whom: a file for each living process, locked as long as it
// lives, with a line for each copy, and one that begins with "-" when it is done with it.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace lockstep::store {

class PinFile {
 public:
  explicit PinFile(const std::string& cache_folder);  // IoError 292
  ~PinFile();
  PinFile(const PinFile&) = delete;
  PinFile& operator=(const PinFile&) = delete;

  void add(const std::vector<std::string>& paths);
  void remove(const std::string& path);  // as often as it was added

  // What living processes use. Files of processes that have ended are removed.
  static std::set<std::string> in_use(const std::string& cache_folder);

 private:
  void append(const std::string& lines);
  std::string path_;
  int file_ = -1;
};

}  // namespace lockstep::store

// The folder that a run began in, so that a save notices when another one stands in its place.
//
// A mount that has gone leaves a bare folder behind, on a disk that nobody meant: a checkpoint written there
// would be hidden when the mount comes back. Mounted again it may have another number, so a folder that holds
// the run's config.toml is taken for the old one.
#pragma once

#include <string>

namespace lockstep::checkpoint {

class HomeFolder {
 public:
  explicit HomeFolder(std::string path);  // one that is not there yet is not watched
  void check() const;                     // IoError 816

 private:
  std::string path_;
  unsigned long long device_ = 0, number_ = 0;
  bool known_ = false;
};

}  // namespace lockstep::checkpoint

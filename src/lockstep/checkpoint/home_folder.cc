#include "lockstep/checkpoint/home_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {

HomeFolder::HomeFolder(std::string path) : path_(std::move(path)) {
  struct stat facts {};
  known_ = ::stat(path_.c_str(), &facts) == 0;
  device_ = facts.st_dev, number_ = facts.st_ino;
}

void HomeFolder::check() const {
  if (!known_) return;
  struct stat now {};
  const bool there = ::stat(path_.c_str(), &now) == 0;
  if (there && now.st_dev == device_ && now.st_ino == number_) return;
  if (there && ::stat((path_ + "/config.toml").c_str(), &now) == 0) return;
  throw base::IoError(816, fmt::format("{} is no longer the folder this run started in: it was unmounted or "
                                       "moved; restore it, and the next save will try again",
                                       path_));
}

}  // namespace lockstep::checkpoint

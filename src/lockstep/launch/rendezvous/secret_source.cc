#include "lockstep/launch/rendezvous/secret_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::launch {
namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

// A file of 0600 with this text that was not there before. Readers see all of it or none: it is written
// beside the path and linked to it, which fails where another process was first. False: it could not be made.
bool make_file(const std::string& path, const std::string& text) {
  const std::string beside = fmt::format("{}.{}.{}", path, base::host_name(), ::getpid());
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  const bool written =
      ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file) == 0;
  ::close(file);
  const bool made = written && ::link(beside.c_str(), path.c_str()) == 0;
  ::unlink(beside.c_str());
  return made;
}

void make_private_folders(const SecretPlaces& places) {
  ::mkdir(places.config_folder.c_str(), 0700);
  ::mkdir((places.config_folder + "/lockstep").c_str(), 0700);
}

// One for this user from now on, or one for this run alone.
FoundSecret make_secret(const SecretPlaces& places) {
  const comm::Secret secret = comm::Secret::random();
  if (!places.config_folder.empty()) {
    const std::string path = places.config_file();
    make_private_folders(places);
    if (make_file(path, secret.to_text() + "\n")) {
      return {secret, fmt::format("created a secret for your runs in {}; nodes that do not share this folder "
                                  "need a copy of the file, or LOCKSTEP_SECRET",
                                  path)};
    }
    if (exists(path)) return {comm::Secret::from_file(path), ""};  // another run was first
  }
  return {secret, fmt::format("on the other nodes, run first: export LOCKSTEP_SECRET={}", secret.to_text())};
}

bool appears(const std::string& path, comm::Duration patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (exists(path)) return true;
    const auto left = std::chrono::duration_cast<comm::Duration>(deadline - std::chrono::steady_clock::now());
    if (left <= comm::Duration::zero()) return false;
    std::this_thread::sleep_for(std::min(left, comm::Duration(200)));
  }
}

}  // namespace

SecretPlaces secret_places(const Environment& environment, const std::string& file) {
  const auto value = [&](const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  SecretPlaces places{file, value("LOCKSTEP_SECRET"), ""};
  const std::string config = value("XDG_CONFIG_HOME"), home = value("HOME");
  if (config.starts_with('/')) {  // the standard says to ignore others
    places.config_folder = config;
  } else if (home.starts_with('/')) {
    places.config_folder = home + "/.config";
  }
  return places;
}

FoundSecret find_secret(const SecretPlaces& places, bool first_node, comm::Duration patience) {
  if (!places.file.empty()) return {comm::Secret::from_file(places.file), ""};
  if (!places.text.empty()) return {comm::Secret::from_text(places.text), ""};
  const std::string path = places.config_folder.empty() ? "" : places.config_file();
  if (!path.empty() && exists(path)) return {comm::Secret::from_file(path), ""};
  if (first_node) return make_secret(places);
  if (!path.empty() && appears(path, patience)) return {comm::Secret::from_file(path), ""};
  throw base::ConfigError(543, fmt::format("this node does not have the run's secret: set LOCKSTEP_SECRET to "
                                           "the same value as on node 0, or give --rdzv-secret-file{}{}",
                                           path.empty() ? "" : ", or copy node 0's file to ", path));
}

}  // namespace lockstep::launch

#include "lockstep/launch/schedulers/rendezvous_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {

namespace {

constexpr size_t kMostBytes = 4096;

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;  // FNV-1a: any that is the same everywhere will do
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
  return hash;
}

std::string path_of(const std::string& job) {
  return fmt::format("{}/job-{:016x}", runtime_folder(process_variable), hash_of(job));
}

// The file's text if it is there, whole, and only ours to write.
std::string read_ours(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return "";
  struct stat facts {};
  char bytes[kMostBytes];
  ssize_t got = 0;
  if (::fstat(file, &facts) == 0 && facts.st_uid == ::geteuid() && (facts.st_mode & 077) == 0) {
    got = ::read(file, bytes, sizeof bytes);
  }
  ::close(file);
  return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
}

}  // namespace

std::string runtime_folder(const Variable& variable) {
  const std::string runtime = variable("XDG_RUNTIME_DIR").value_or("");
  std::error_code ignored;
  const bool has_runtime = !runtime.empty() && std::filesystem::is_directory(runtime, ignored);
  const std::string folder =
      has_runtime ? runtime + "/lockstep"
                  : fmt::format("{}/lockstep-{}", variable("TMPDIR").value_or("/tmp"), ::geteuid());
  ::mkdir(folder.c_str(), 0700);
  struct stat facts {};
  const bool there = ::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
  if (!there || facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0) {
    throw FolderNotOursError(550, fmt::format("{} must be a private folder of this user (mode 0700); remove "
                                              "it, or set XDG_RUNTIME_DIR to another folder",
                                              folder));
  }
  return folder;
}

RendezvousFile::RendezvousFile(const std::string& job, const StoreAddress& address) : path_(path_of(job)) {
  const std::string text = address.endpoint + "\n" + address.secret.to_text() + "\n";
  const std::string draft = fmt::format("{}.{}", path_, ::getpid());
  ::unlink(draft.c_str());
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool written =
      file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  if (!written || ::rename(draft.c_str(), path_.c_str()) != 0) {
    throw base::IoError(802, fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
  }
}

RendezvousFile::~RendezvousFile() { ::unlink(path_.c_str()); }

std::optional<StoreAddress> find_rendezvous_file(const std::string& job) {
  const std::vector<std::string> lines = base::split_lines(read_ours(path_of(job)));
  if (lines.size() < 2) return std::nullopt;
  return StoreAddress{lines[0], comm::Secret::from_text(lines[1])};
}

StoreAddress await_rendezvous_file(const std::string& job, Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const std::string path = path_of(job);
  for (;;) {
    if (const std::optional<StoreAddress> found = find_rendezvous_file(job)) return *found;
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(Duration(20));
  }
  throw base::CommError(551,
                        fmt::format("rank 0 did not join within {}: no {} was written",
                                    base::human_duration(static_cast<double>(timeout.count()) / 1000), path));
}

}  // namespace lockstep::launch

// A folder of this machine as a store: file:///mnt/disk/runs.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/descriptor.h"
#include "lockstep/store/store.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

std::string path_of(const std::string& key) { return "/" + key; }

[[noreturn]] void fail(const std::string& why) { throw Fault(Fault::Kind::passing, why); }

[[noreturn]] void fail_with_number(int number) {
  const std::string why = std::strerror(number);
  if (number == ENOENT || number == ENOTDIR) throw Fault(Fault::Kind::missing, why);
  if (number == EACCES || number == EPERM) throw Fault(Fault::Kind::denied, why);
  fail(why);
}

Object object_of(const std::string& key, const struct stat& status) {
  const int64_t changed = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return {.key = key, .size = status.st_size, .changed_ns = changed};
}

class FolderStore final : public Store {
 public:
  std::vector<Object> list(const std::string& folder) override {
    std::vector<Object> found;
    std::error_code error;
    if (!fs::is_directory(path_of(folder), error)) return found;
    for (fs::recursive_directory_iterator it(path_of(folder), error), end; !error && it != end;
         it.increment(error)) {
      struct stat status {};
      if (::stat(it->path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
        found.push_back(object_of(it->path().string().substr(1), status));
    }
    if (error) fail_with_number(error.value());
    std::sort(found.begin(), found.end(), [](const Object& a, const Object& b) { return a.key < b.key; });
    return found;
  }

  std::optional<Object> find(const std::string& key) override {
    struct stat status {};
    if (::stat(path_of(key).c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
      fail_with_number(errno);
    }
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    Object object = object_of(key, status);
    object.version = fmt::format("{}-{}", object.changed_ns, object.size);
    return object;
  }

  void read(const Object& object, int64_t offset, std::span<std::byte> out) override {
    const base::Descriptor file(::open(path_of(object.key).c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number < 0) fail_with_number(errno);
    while (!out.empty()) {
      const ssize_t got = ::pread(file.number, out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_with_number(errno);
      if (got == 0) fail("it is shorter than it was");
      out = out.subspan(static_cast<size_t>(got));
      offset += got;
    }
  }

  void write(const std::string& key, const std::string& from) override {
    const fs::path to = path_of(key);
    const fs::path beside = to.parent_path() / fmt::format(".{}.{}", to.filename().string(), ::getpid());
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    if (!error) fs::copy_file(from, beside, fs::copy_options::overwrite_existing, error);
    if (!error) flush(beside);
    if (!error) fs::rename(beside, to, error);
    if (!error) return;
    std::error_code ignored;
    fs::remove(beside, ignored);
    if (!fs::exists(from, ignored)) throw Fault(Fault::Kind::local, from + " is gone");
    fail_with_number(error.value());
  }

  void remove(const std::string& key) override {
    std::error_code error;
    fs::remove(path_of(key), error);
    if (error) fail_with_number(error.value());
    for (fs::path folder = fs::path(path_of(key)).parent_path(); !error && fs::is_empty(folder, error);
         folder = folder.parent_path())
      fs::remove(folder, error);  // stores have no empty folders
  }

 private:
  static void flush(const fs::path& path) {
    const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number < 0 || ::fsync(file.number) != 0) fail_with_number(errno);
  }
};

}  // namespace

std::unique_ptr<Store> open_folder_store() { return std::make_unique<FolderStore>(); }

}  // namespace lockstep::store

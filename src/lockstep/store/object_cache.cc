#include "lockstep/store/object_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/store/endpoint.h"
#include "lockstep/store/pins.h"
#include "lockstep/store/record.h"
#include "lockstep/store/threads.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

constexpr int kMostChanges = 3;  // an object that is replaced so often while it is read is given up

[[noreturn]] void refuse_disk(const std::string& path) {
  throw base::IoError(292, fmt::format("{} cannot be written: {}; free space on its disk, or set "
                                       "LOCKSTEP_OBJECT_CACHE to another folder",
                                       path, std::strerror(errno)));
}

// What a fetch that was killed leaves behind; the next one begins it again.
std::string part_for(const std::string& copy) {
  const fs::path path(copy);
  return (path.parent_path() / ("." + path.filename().string() + ".part")).string();
}

// A new file beside the copy; gone again unless it became the copy.
class Part {
 public:
  Part(const std::string& copy, int64_t size)
      : copy_(copy),
        path_(part_for(copy)),
        file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (file_.number < 0) refuse_disk(path_);
    const int failed = size > 0 ? ::posix_fallocate(file_.number, 0, size) : 0;  // not halfway through
    if (failed == 0) return;
    ::unlink(path_.c_str());
    errno = failed;
    refuse_disk(path_);
  }
  ~Part() {
    if (!done_) ::unlink(path_.c_str());
  }
  void write(int64_t at, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t wrote = ::pwrite(file_.number, bytes.data(), bytes.size(), at);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) refuse_disk(path_);
      bytes = bytes.subspan(static_cast<size_t>(wrote));
      at += wrote;
    }
  }
  void become_copy() {
    if (::fdatasync(file_.number) != 0 || ::rename(path_.c_str(), copy_.c_str()) != 0) refuse_disk(path_);
    done_ = true;
  }

 private:
  const std::string copy_, path_;
  const base::Descriptor file_;
  bool done_ = false;
};

int64_t size_of(const std::string& path) {
  std::error_code gone;
  const auto bytes = fs::file_size(path, gone);
  return gone ? 0 : static_cast<int64_t>(bytes);
}

struct Copy {
  std::string path;
  int64_t bytes = 0;
  fs::file_time_type used;
};

// The copies below a folder, with what lies there unfinished.
std::vector<Copy> copies_in(const std::string& folder) {
  std::vector<Copy> copies;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const std::string path = it->path().string();
    if (!Record::is_record(path)) continue;
    const std::string copy = Record::copy_of(path);
    copies.push_back(
        {.path = copy, .bytes = size_of(copy) + size_of(part_for(copy)), .used = it->last_write_time(gone)});
  }
  return copies;
}

// Under the copy's lock unless somebody is fetching it just now. What has it open reads on.
bool remove_copy(const std::string& copy) {
  const std::string record = Record::path_for(copy);
  const base::Descriptor lock(::open(record.c_str(), O_RDWR | O_CLOEXEC));
  if (lock.number < 0 || ::flock(lock.number, LOCK_EX | LOCK_NB) != 0) return false;
  std::error_code ignored;
  fs::remove(copy, ignored);
  fs::remove(part_for(copy), ignored);
  fs::remove(record, ignored);
  return true;
}

}  // namespace

class ObjectCache::Pins : public PinFile {
 public:
  using PinFile::PinFile;
};

CacheOptions usual_cache() {
  CacheOptions options;
  if (const auto said = base::environment("LOCKSTEP_OBJECT_CACHE"); said && !said->empty()) {
    options.folder = *said;
  } else if (const auto cache = base::environment("XDG_CACHE_HOME"); cache && !cache->empty()) {
    options.folder = *cache + "/lockstep/objects";
  } else if (const auto home = base::environment("HOME"); home && !home->empty()) {
    options.folder = *home + "/.cache/lockstep/objects";
  } else {
    throw base::ConfigError(293,
                            "there is no home folder to keep copies of objects in; set "
                            "LOCKSTEP_OBJECT_CACHE to a folder");
  }
  if (const auto said = base::environment("LOCKSTEP_OBJECT_CACHE_GIB")) {
    const auto gib = base::parse_number<double>(*said);
    if (!gib || *gib <= 0 || *gib > 1e6)
      throw base::ConfigError(293, "LOCKSTEP_OBJECT_CACHE_GIB is not a number of GiB above 0");
    options.most_bytes = static_cast<int64_t>(*gib * static_cast<double>(int64_t{1} << 30));
  }
  return options;
}

ObjectCache::ObjectCache(CacheOptions options) : options_(std::move(options)) {
  base::make_folders(options_.folder);
  pins_ = std::make_unique<Pins>(options_.folder);
}

ObjectCache::~ObjectCache() = default;

// Other servers have other buckets of the same name.
std::string ObjectCache::path_of(const Uri& uri, const std::string& key) const {
  const std::string server = uri.account + uri.query + address_in_environment(uri);
  return fmt::format("{}/{}{}/{}", options_.folder, uri.scheme,
                     server.empty() ? "" : "-" + base::hex64(base::hash_text(server)).substr(0, 8), key);
}

bool ObjectCache::has(const Uri& uri, const Object& object) const {
  return Record::fits(path_of(uri, object.key), object);
}

void ObjectCache::fetch(Store& store, const Uri& uri, const std::vector<Object>& objects) {
  std::vector<std::string> paths;
  for (const Object& object : objects) paths.push_back(path_of(uri, object.key));
  pins_->add(paths);
  std::vector<Object> small, large;
  int64_t bytes = 0;
  for (const Object& object : objects) {
    const std::string path = path_of(uri, object.key);
    if (has(uri, object)) {
      Record(path).touch();
      continue;
    }
    bytes += object.size;
    (object.size <= options_.range ? small : large).push_back(object);
  }
  if (small.empty() && large.empty()) return;
  make_room(bytes, uri.shown());
  in_threads(options_.threads, static_cast<int64_t>(small.size()),
             [&](int64_t i) { fetch_one(store, uri, small[static_cast<size_t>(i)], 1); });
  for (const Object& object : large) fetch_one(store, uri, object, options_.threads);
}

void ObjectCache::release(const Uri& uri, const Object& object) { pins_->remove(path_of(uri, object.key)); }

void ObjectCache::fetch_one(Store& store, const Uri& uri, const Object& listed, int threads) {
  const std::string path = path_of(uri, listed.key);
  base::make_folders(fs::path(path).parent_path().string());
  Record record(path);
  if (Record::fits(path, listed)) return record.touch();  // another process was quicker
  record.clear();
  for (int changes = 0; changes < kMostChanges; ++changes) {
    const std::optional<Object> object = store.find(listed.key);
    if (!object) {
      throw base::DataError(
          288, fmt::format("{} was removed from the store while it was read", uri.shown(listed.key)));
    }
    Part part(path, object->size);
    const int64_t ranges = (object->size + options_.range - 1) / options_.range;
    in_threads(threads, ranges, [&](int64_t i) {
      const int64_t begin = i * options_.range, end = std::min(begin + options_.range, object->size);
      std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
      store.read(*object, begin, bytes);
      part.write(begin, bytes);
    });
    const std::optional<Object> after = store.find(listed.key);
    if (!after || after->size != object->size || after->version != object->version ||
        after->changed_ns != object->changed_ns)
      continue;
    part.become_copy();
    return record.write(*object);
  }
  throw base::DataError(294, fmt::format("{} was replaced {} times while it was read; run again when whoever "
                                         "writes it is done",
                                         uri.shown(listed.key), kMostChanges));
}

void ObjectCache::make_room(int64_t bytes, const std::string& for_what) {
  const base::Descriptor lock(
      ::open((options_.folder + "/.room").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.number < 0 || ::flock(lock.number, LOCK_EX) != 0) refuse_disk(options_.folder + "/.room");
  std::vector<Copy> copies = copies_in(options_.folder);
  int64_t there = 0;
  for (const Copy& copy : copies) there += copy.bytes;
  if (there + bytes <= options_.most_bytes) return;
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) { return a.used < b.used; });
  const std::set<std::string> used = PinFile::in_use(options_.folder);
  for (const Copy& copy : copies) {
    if (there + bytes <= options_.most_bytes) return;
    if (!used.contains(copy.path) && remove_copy(copy.path)) there -= copy.bytes;
  }
  if (there + bytes <= options_.most_bytes) return;
  throw base::ConfigError(
      291, fmt::format("{} needs {} in the cache {}, which may hold {} and has {} in use; raise "
                       "LOCKSTEP_OBJECT_CACHE_GIB, or set LOCKSTEP_OBJECT_CACHE to a folder on a larger disk",
                       for_what, base::human_bytes(static_cast<double>(bytes)), options_.folder,
                       base::human_bytes(static_cast<double>(options_.most_bytes)),
                       base::human_bytes(static_cast<double>(there))));
}

void ObjectCache::keep_only(const Uri& uri, const std::string& folder, const std::vector<Object>& objects) {
  std::set<std::string> wanted;
  for (const Object& object : objects) wanted.insert(path_of(uri, object.key));
  for (const Copy& copy : copies_in(path_of(uri, folder))) {
    if (!wanted.contains(copy.path)) remove_copy(copy.path);
  }
}

}  // namespace lockstep::store

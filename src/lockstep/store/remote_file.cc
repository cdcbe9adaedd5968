#include "lockstep/store/remote_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/store/object_cache.h"

namespace lockstep::store {
namespace {

constexpr auto kTrusted = std::chrono::seconds(60);
constexpr int64_t kMostAnnounced = int64_t{256} << 20;
constexpr int64_t kLargestFetched = int64_t{4} << 30;

}  // namespace

int64_t largest_fetched() { return std::min(kLargestFetched, usual_cache().most_bytes / 2); }

std::shared_ptr<RemoteFile> RemoteFile::open(std::shared_ptr<Store> store, const Uri& uri) {
  const std::optional<Object> object = store->find(uri.path);
  if (!object) throw base::DataError(288, fmt::format("{} is not there; check its name", uri.shown()));
  return std::make_shared<RemoteFile>(std::move(store), uri, *object);
}

RemoteFile::RemoteFile(std::shared_ptr<Store> store, Uri uri, Object object)
    : store_(std::move(store)),
      uri_(std::move(uri)),
      object_(std::move(object)),
      checked_(std::chrono::steady_clock::now()) {}

uint64_t RemoteFile::hash() const {
  const uint64_t name = base::hash_text(object_.key);
  return base::hash_combine(base::hash_combine(name, static_cast<uint64_t>(object_.size)),
                            base::hash_text(object_.version));
}

void RemoteFile::announce(int64_t offset, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (announced_bytes_ + bytes > kMostAnnounced || announced_.contains({offset, bytes})) return;
    announced_bytes_ += bytes;
  }
  std::vector<std::byte> piece(static_cast<size_t>(bytes));
  try {
    check_version();
    store_->read(object_, offset, piece);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    announced_bytes_ -= bytes;
    throw;
  }
  const std::lock_guard lock(mutex_);
  if (!announced_.emplace(std::pair(offset, bytes), std::move(piece)).second) announced_bytes_ -= bytes;
}

void RemoteFile::read(int64_t offset, std::span<std::byte> out) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = announced_.find({offset, static_cast<int64_t>(out.size())});
    if (found != announced_.end()) {
      std::copy(found->second.begin(), found->second.end(), out.begin());
      announced_.erase(found);
      announced_bytes_ -= static_cast<int64_t>(out.size());
      return;
    }
  }
  check_version();
  store_->read(object_, offset, out);
}

void RemoteFile::check_version() {
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - checked_ < kTrusted) return;
    checked_ = now;
  }
  const std::optional<Object> now = store_->find(object_.key);
  if (now && now->size == object_.size && now->version == object_.version) return;
  throw base::DataError(
      295, fmt::format("{} was {} during the run; restore it and run the same command again", name(),
                       now ? "replaced" : "removed"));
}

}  // namespace lockstep::store

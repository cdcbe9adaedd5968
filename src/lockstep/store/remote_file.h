// An object that is read where it lies, piece by piece: data that is larger than the cache may grow.
//
//     const auto file = RemoteFile::open(store, uri, key);
//     file->announce(4096, 2048);     // fetched now, kept until it is read
//     file->read(4096, bytes);        // without waiting
//
// Safe to use from several threads. Every minute the object is looked at again: one that was replaced is a
// DataError 295, because its pieces would be of two kinds.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lockstep/store/store.h"

namespace lockstep::store {

class RemoteFile {
 public:
  // DataError 288: it is not there.
  static std::shared_ptr<RemoteFile> open(std::shared_ptr<Store> store, const Uri& uri);
  RemoteFile(std::shared_ptr<Store> store, Uri uri, Object object);

  std::string name() const { return uri_.shown(); }
  int64_t size() const { return object_.size; }
  uint64_t hash() const;  // of its key, size and version, not of its bytes
  void announce(int64_t offset, int64_t bytes);
  void read(int64_t offset, std::span<std::byte> out);

 private:
  void check_version();

  const std::shared_ptr<Store> store_;
  const Uri uri_;
  const Object object_;
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::byte>> announced_;  // by offset and size
  int64_t announced_bytes_ = 0;
  std::chrono::steady_clock::time_point checked_;
};

// More data than this is read where it lies instead of being fetched first.
int64_t largest_fetched();

}  // namespace lockstep::store

// Copies of objects on the local disk, so that everything else reads files.
//
//     ObjectCache cache(usual_cache());
//     cache.fetch(*store, uri, objects);                 // in parallel; what is there already is not fetched
//     open(cache.path_of(uri, objects.front().key));     // CACHE/s3/bucket/corpus/a.parquet
//
// A copy appears under its name only when every byte of it has come and the object was the same one before
// and after: whoever is killed leaves nothing that looks whole. Several processes share a cache: one fetches
// an object while the others wait for it. Copies that have not been used for the longest time go when the
// folder gets too large; those that a living process has asked for stay.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/store/store.h"

namespace lockstep::store {

struct CacheOptions {
  std::string folder;
  int64_t most_bytes = int64_t{64} << 30;
  int threads = 16;                  // requests at once
  int64_t range = int64_t{8} << 20;  // bytes of a request
};
CacheOptions usual_cache();  // LOCKSTEP_OBJECT_CACHE and LOCKSTEP_OBJECT_CACHE_GIB; ConfigError 293

class ObjectCache {
 public:
  explicit ObjectCache(CacheOptions options);  // IoError 803
  ~ObjectCache();
  ObjectCache(const ObjectCache&) = delete;
  ObjectCache& operator=(const ObjectCache&) = delete;

  std::string path_of(const Uri& uri, const std::string& key) const;
  bool has(const Uri& uri, const Object& object) const;  // a copy of just this version
  // Fetches what is not there. From then on, as long as this cache lives, the copies stay. ConfigError 291:
  // they are more than the cache may hold. IoError 292: the disk. DataError 294: an object keeps changing.
  void fetch(Store& store, const Uri& uri, const std::vector<Object>& objects);
  // The copy of one that was fetched may go again when space is needed.
  void release(const Uri& uri, const Object& object);
  // Removes the copies below a folder of objects that are no longer in the store.
  void keep_only(const Uri& uri, const std::string& folder, const std::vector<Object>& objects);

 private:
  class Pins;
  void fetch_one(Store& store, const Uri& uri, const Object& object, int threads);
  void make_room(int64_t bytes, const std::string& for_what);

  const CacheOptions options_;
  std::unique_ptr<Pins> pins_;
};

}  // namespace lockstep::store

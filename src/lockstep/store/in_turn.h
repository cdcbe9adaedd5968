// Files that are read one after the other, some of which are objects of stores that need not fit the disk
// together.
//
//     InTurn inputs(files, objects);
//     for (size_t i = 0; i < files.size(); ++i) read(inputs.local(i));
//
// An object is fetched into the cache when its turn comes, and the one behind it while it is read. Where the
// cache is too small for more, the copies of those before make room.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/store/local.h"

namespace lockstep::store {

class InTurn {
 public:
  // `files`: paths, and URIs, each of which is one of `objects`. cache: null is this process's own.
  InTurn(std::vector<std::string> files, std::map<std::string, Object> objects, ObjectCache* cache = nullptr);
  ~InTurn();
  InTurn(const InTurn&) = delete;
  InTurn& operator=(const InTurn&) = delete;

  // The file, or its copy, which stays until this is called for the next one. In their order. What fetching
  // throws.
  std::string local(size_t index);

 private:
  struct Remote {
    Uri uri;
    Object object;
    Store* store;
  };
  const Remote* remote(size_t index);
  ObjectCache& cache() const { return cache_ != nullptr ? *cache_ : own_cache(); }
  void fetch_ahead(size_t index);

  const std::vector<std::string> files_;
  const std::map<std::string, Object> objects_;
  ObjectCache* const cache_;
  std::map<std::string, Remote> remotes_;
  std::map<std::string, std::unique_ptr<Store>> stores_;  // one of a bucket is enough for its objects
  size_t held_ = SIZE_MAX;                                // whose copy stays
  size_t ahead_ = SIZE_MAX;                               // whose copy is on its way, or here
  std::future<bool> came_;
};

}  // namespace lockstep::store

// What lies in a store, as files of this machine.
//
//     local_path("s3://bucket/llama3/")      // /home/me/.cache/lockstep/objects/s3/bucket/llama3, fetched
//     local_path("llama3/")                  // "llama3/": not in a store
//
// Fetched again only where the store's copy has changed. What was fetched stays in the cache while this
// process lives.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/store/object_cache.h"

namespace lockstep::store {

struct Local {
  std::string path;                // of the object or the folder; empty for a pattern
  std::vector<std::string> files;  // all of them, in the order of their keys; at least one
  bool is_folder = false;
};
// An object, a folder with all that is in it, or what a pattern matches. DataError 288: nothing there.
Local fetch(const std::string& uri);
Local fetch(Store& store, const Uri& uri, ObjectCache& cache);

// What fetch() would fetch. At least one object.
struct Listed {
  Uri uri;
  std::vector<Object> objects;
};
Listed list_of(const std::string& uri);

// Of the objects in a folder only those that are wanted. Returns the folder.
using Wanted = std::function<std::vector<Object>(const std::vector<Object>& all)>;
std::string fetch_some(const Uri& uri, const Wanted& wanted);

std::string local_path(const std::string& path);

// The same of a folder whose small files are enough: of a model its tokenizer and configuration, not its
// weights.
std::string local_small_files(const std::string& path);

// The cache of this process: what it fetched is in use until it ends.
ObjectCache& own_cache();

}  // namespace lockstep::store

// A place that keeps objects under names: S3, Google Cloud Storage, Azure, or a folder.
//
//     const std::unique_ptr<Store> store = open_store(parse_uri("s3://bucket/corpus/"));
//     for (const Object& object : store->list("bucket/corpus")) read(*store, object);
//
// Keys begin with the bucket. An object appears whole or not at all: a write that fails leaves what was there
// before. What open_store() gives tries again when the store is busy, resets a connection or sends too
// little, with growing pauses, for LOCKSTEP_OBJECT_PATIENCE seconds, and then says what the last trouble was.
// Safe to use from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/store/uri.h"

namespace lockstep::store {

struct Object {
  std::string key;
  int64_t size = 0;
  int64_t changed_ns = 0;    // when it was written; 0: the store does not say
  std::string version = {};  // its ETag or generation, where it was asked for by find()
};

class Store {
 public:
  virtual ~Store() = default;
  // All objects below a folder, at any depth, in the order of their keys. Nothing there: none.
  virtual std::vector<Object> list(const std::string& folder) = 0;
  virtual std::optional<Object> find(const std::string& key) = 0;
  // Fills `out` with the bytes from `offset` on, all of which are there.
  virtual void read(const Object& object, int64_t offset, std::span<std::byte> out) = 0;
  virtual void write(const std::string& key, const std::string& file) = 0;  // a copy of a local file
  virtual void remove(const std::string& key) = 0;                          // one that is not there: no error
};

// What stores throw among themselves, before anyone has tried again.
struct Fault : std::runtime_error {
  enum class Kind : uint8_t {
    passing,  // may go well the next time
    missing,  // no such object or bucket
    denied,   // credentials that are missing, wrong or expired
    local,    // a file of this machine cannot be read
  };
  Fault(Kind k, const std::string& why) : std::runtime_error(why), kind(k) {}
  Kind kind;
};

// ConfigError 287: this build has no Arrow. What its functions throw: DataError 288, no such object or
// bucket; ConfigError 289, access is refused; IoError 290, the store does not answer.
std::unique_ptr<Store> open_store(const Uri& uri);

// The same around any store: how it waits and how long is the caller's.
struct Patience {
  double seconds = 120;                            // in all, for one object or range
  double first_pause = 0.1, longest_pause = 8;     // doubled from one to the other
  std::function<void(double seconds)> pause = {};  // empty: sleeps
  std::function<double()> clock = {};              // empty: the monotonic one
};
Patience usual_patience();  // with LOCKSTEP_OBJECT_PATIENCE
std::unique_ptr<Store> with_patience(std::unique_ptr<Store> store, Uri uri, Patience patience);

std::unique_ptr<Store> open_folder_store();  // file://: keys are paths without the first slash

}  // namespace lockstep::store

// In the plugin (liblockstep_stores.so). The caller owns what it gets; throws Fault.
extern "C" lockstep::store::Store* lockstep_open_store(const lockstep::store::Uri& uri);

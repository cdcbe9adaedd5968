// The store: a small shared dictionary of bytes through which the ranks of a run find each other.
//
//     store.set("rank-3/address", "10.0.0.7:4411");
//     const std::string address = store.get("rank-3/address", 30s);   // waits until someone sets it
//
// Values are bytes. Every waiting call has a timeout and fails with CommError 510, naming the key. There are
// three kinds: LocalStore (threads of one process), StoreClient (a connection to the StoreServer that sits in
// the launcher) and PrefixStore (another one's keys below a prefix). A store is used by one thread at a time;
// clone() gives another thread its own, also while this one waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::comm {

using Duration = std::chrono::milliseconds;

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::string get(const std::string& key, Duration timeout) = 0;  // waits for the key
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;  // a counter, as decimal text; the sum
  // Sets `desired` if the value is `expected` (or the key is absent and `expected` is empty); returns what
  // stands then, as c10d::Store::compareSet does.
  virtual std::string compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) = 0;
  virtual void append(const std::string& key, const std::string& value) = 0;
  virtual void wait(const std::vector<std::string>& keys, Duration timeout) = 0;
  virtual bool check(const std::vector<std::string>& keys) = 0;  // all are there
  virtual bool remove(const std::string& key) = 0;
  virtual std::vector<std::string> keys() = 0;
  virtual void push(const std::string& queue, const std::string& value) = 0;
  // Nothing when there was nothing in time. A timeout of zero does not wait.
  virtual std::optional<std::string> pop(const std::string& queue, Duration timeout) = 0;
  virtual int64_t queue_length(const std::string& queue) = 0;
  virtual std::unique_ptr<Store> clone() = 0;  // with a connection of its own; any thread, at any time
};

// A dictionary inside this process; clones share it. For ranks that are threads, and for tests.
std::unique_ptr<Store> make_local_store();

// The same store with `prefix` and a slash before every key; keys() lists those below it.
std::unique_ptr<Store> with_prefix(std::unique_ptr<Store> store, std::string prefix);

}  // namespace lockstep::comm

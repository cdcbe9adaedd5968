#include "lockstep/store/in_turn.h"

#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::store {

InTurn::InTurn(std::vector<std::string> files, std::map<std::string, Object> objects, ObjectCache* cache)
    : files_(std::move(files)), objects_(std::move(objects)), cache_(cache) {}

InTurn::~InTurn() {
  if (came_.valid()) came_.wait();
}

// Null: a file of this machine.
const InTurn::Remote* InTurn::remote(size_t index) {
  if (index >= files_.size() || !is_uri(files_[index])) return nullptr;
  const auto known = remotes_.find(files_[index]);
  if (known != remotes_.end()) return &known->second;
  const auto object = objects_.find(files_[index]);
  LS_ASSERT(object != objects_.end(), "a URI without its object");
  const Uri uri = parse_uri(files_[index]);
  std::unique_ptr<Store>& store = stores_[uri.shown(uri.bucket()) + uri.query];
  if (!store) store = open_store(uri);
  return &remotes_.emplace(files_[index], Remote{uri, object->second, store.get()}).first->second;
}

std::string InTurn::local(size_t index) {
  const bool came = came_.valid() && came_.get() && ahead_ == index;
  if (const Remote* before = remote(held_); before != nullptr && held_ != index)
    cache().release(before->uri, before->object);
  held_ = index;
  const Remote* wanted = remote(index);
  if (wanted == nullptr) return files_[index];
  if (!came) cache().fetch(*wanted->store, wanted->uri, {wanted->object});
  fetch_ahead(index + 1);
  return cache().path_of(wanted->uri, wanted->object.key);
}

// What goes wrong ahead is tried again when it is the object's turn, with more space, and is told then.
void InTurn::fetch_ahead(size_t index) {
  const Remote* next = remote(index);
  if (next == nullptr) return;
  const auto fetch = [this, next] {
    try {
      cache().fetch(*next->store, next->uri, {next->object});
      return true;
    } catch (const base::Error&) {
      cache().release(next->uri, next->object);
      return false;
    }
  };
  try {
    ahead_ = index;
    came_ = std::async(std::launch::async, fetch);
  } catch (const std::system_error&) {  // no more threads: it waits for its turn
  }
}

}  // namespace lockstep::store

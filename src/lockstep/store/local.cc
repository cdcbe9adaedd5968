#include "lockstep/store/local.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::store {
namespace {

constexpr int64_t kSmall = int64_t{64} << 20;

bool is_hidden(const std::string& folder, const std::string& key) {
  return key.substr(folder.size()).find("/.") != std::string::npos;
}

std::vector<Object> shown_objects(Store& store, const std::string& folder) {
  std::vector<Object> objects = store.list(folder);
  std::erase_if(objects, [&](const Object& one) { return is_hidden(folder, one.key); });
  return objects;
}

[[noreturn]] void refuse_nothing(const Uri& uri, const char* why) {
  throw base::DataError(288, fmt::format("{} cannot be read: {}; check its name", uri.shown(), why));
}

struct Found {
  std::vector<Object> objects;
  bool is_folder = false, is_pattern = false;
};

// Megatron's pair, by the name of its .bin or by what both names share. Without its .idx the type of tokens
// is a guess.
std::vector<Object> pair_of(Store& store, const std::string& path) {
  const std::string prefix = path.ends_with(".bin") ? path.substr(0, path.size() - 4) : path;
  std::optional<Object> bin = store.find(prefix + ".bin"), index = bin ? store.find(prefix + ".idx") : bin;
  if (!index) return {};
  return {std::move(*bin), std::move(*index)};
}

Found find(Store& store, const Uri& uri) {
  if (std::optional<Object> object = store.find(uri.path)) {
    std::vector<Object> pair = uri.path.ends_with(".bin") ? pair_of(store, uri.path) : std::vector<Object>{};
    if (!pair.empty()) return {.objects = std::move(pair), .is_pattern = true};
    return {.objects = {std::move(*object)}};
  }
  if (is_pattern(uri.path)) {
    std::vector<Object> objects = shown_objects(store, folder_of_pattern(uri.path));
    std::erase_if(objects, [&](const Object& one) { return !matches(uri.path, one.key); });
    if (objects.empty()) refuse_nothing(uri, "no object matches");
    return {.objects = std::move(objects), .is_pattern = true};
  }
  std::vector<Object> objects = shown_objects(store, uri.path);
  if (objects.empty()) {
    if (std::vector<Object> pair = pair_of(store, uri.path); !pair.empty())
      return {.objects = std::move(pair), .is_pattern = true};
    refuse_nothing(uri, "there is no such object, and no folder with objects");
  }
  return {.objects = std::move(objects), .is_folder = true};
}

Local taken(Store& store, const Uri& uri, ObjectCache& cache, const std::vector<Object>& objects) {
  cache.fetch(store, uri, objects);
  Local local;
  for (const Object& one : objects) local.files.push_back(cache.path_of(uri, one.key));
  return local;
}

}  // namespace

Local fetch(Store& store, const Uri& uri, ObjectCache& cache) {
  const Found found = find(store, uri);
  if (found.is_folder) cache.keep_only(uri, uri.path, found.objects);
  Local local = taken(store, uri, cache, found.objects);
  local.is_folder = found.is_folder;
  if (!found.is_pattern) local.path = cache.path_of(uri, uri.path);
  return local;
}

Listed list_of(const std::string& text) {
  const Uri uri = parse_uri(text);
  return {.uri = uri, .objects = find(*open_store(uri), uri).objects};
}

ObjectCache& own_cache() {
  static ObjectCache cache(usual_cache());
  return cache;
}

Local fetch(const std::string& text) {
  const Uri uri = parse_uri(text);
  const std::unique_ptr<Store> store = open_store(uri);
  return fetch(*store, uri, own_cache());
}

std::string fetch_some(const Uri& uri, const Wanted& wanted) {
  const std::unique_ptr<Store> store = open_store(uri);
  const std::vector<Object> all = shown_objects(*store, uri.path);
  if (all.empty()) refuse_nothing(uri, "there is no folder with objects");
  own_cache().keep_only(uri, uri.path, all);
  own_cache().fetch(*store, uri, wanted(all));
  return own_cache().path_of(uri, uri.path);
}

std::string local_small_files(const std::string& path) {
  if (!is_uri(path)) return path;
  const Uri uri = parse_uri(path);
  const std::unique_ptr<Store> store = open_store(uri);
  if (store->find(uri.path)) return fetch(*store, uri, own_cache()).path;
  return fetch_some(uri, [&](const std::vector<Object>& all) {
    std::vector<Object> small;
    for (const Object& one : all) {
      const bool directly = one.key.find('/', uri.path.size() + 1) == std::string::npos;
      if (directly && one.size <= kSmall && !one.key.ends_with(".safetensors")) small.push_back(one);
    }
    return small;
  });
}

std::string local_path(const std::string& path) {
  if (!is_uri(path)) return path;
  const Local local = fetch(path);
  if (local.path.empty())
    throw base::ConfigError(286, fmt::format("{} is a pattern; expected one object or folder", path));
  return local.path;
}

}  // namespace lockstep::store

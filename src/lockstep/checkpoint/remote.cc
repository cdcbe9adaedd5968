#include "lockstep/checkpoint/remote.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/step_folders.h"
#include "lockstep/store/local.h"
#include "lockstep/store/threads.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using store::Object;

constexpr int kFilesAtOnce = 4;
constexpr const char* kOwnerName = "owner.json";
constexpr int64_t kMostOwner = 1 << 16;  // bytes
// What a run folder has besides checkpoints that a run on another machine goes on with.
constexpr const char* kRunFiles[] = {"config.toml", "record.json", "metrics.jsonl", "events.jsonl"};
// Other forms of the same weights, which are left where they are if there are safetensors.
constexpr const char* kOtherForms[] = {".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".gguf", ".ot"};

// "checkpoints/step-00000100/manifest.json" below `root`: the step and the name.
std::optional<std::pair<int64_t, std::string>> place_of(const std::string& root, const std::string& key) {
  const std::string begin = checkpoints_folder(root) + "/";
  if (!key.starts_with(begin)) return std::nullopt;
  const std::string rest = key.substr(begin.size());
  const size_t slash = rest.find('/');
  const auto step = step_of(rest.substr(0, slash));
  if (!step || slash == std::string::npos) return std::nullopt;
  return std::pair{*step, rest.substr(slash + 1)};
}

// Of each step, whether it has a manifest. An empty one is none: Azure makes a blob before its bytes come, so
// that is what an upload leaves that was killed at its last moment.
std::map<int64_t, bool> steps_in(const std::string& root, const std::vector<Object>& objects) {
  std::map<int64_t, bool> steps;
  for (const Object& one : objects) {
    if (const auto place = place_of(root, one.key))
      steps[place->first] |= place->second == kManifestName && one.size > 0;
  }
  return steps;
}

std::vector<int64_t> complete_steps(const std::string& root, const std::vector<Object>& objects) {
  std::vector<int64_t> complete;
  for (const auto& [step, whole] : steps_in(root, objects)) {
    if (whole) complete.push_back(step);
  }
  std::reverse(complete.begin(), complete.end());
  return complete;
}

std::vector<Object> in_step(const std::string& root, const std::vector<Object>& objects, int64_t step) {
  std::vector<Object> found;
  for (const Object& one : objects) {
    const auto place = place_of(root, one.key);
    if (place && place->first == step) found.push_back(one);
  }
  return found;
}

bool is_directly_in(const std::string& root, const std::string& key) {
  return key.find('/', root.size() + 1) == std::string::npos;
}

// What of a model's folder is read.
std::vector<Object> model_files(const std::string& root, const std::vector<Object>& objects) {
  std::vector<Object> files;
  for (const Object& one : objects) {
    if (is_directly_in(root, one.key)) files.push_back(one);
  }
  const bool safe = std::any_of(files.begin(), files.end(),
                                [](const Object& one) { return one.key.ends_with(".safetensors"); });
  std::erase_if(files, [&](const Object& one) {
    return safe && std::any_of(std::begin(kOtherForms), std::end(kOtherForms),
                               [&](const char* end) { return one.key.ends_with(end); });
  });
  return files;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->is_regular_file(error)) names.push_back(at->path().filename().string());
  }
  if (error || std::find(names.begin(), names.end(), kManifestName) == names.end())
    throw RemovedError(345, folder + " was removed before all of it was uploaded; newer ones follow");
  std::erase(names, std::string(kManifestName));
  return names;
}

// A second name for the same bytes where that is possible: neither the cache nor a run writes into a file
// that stands.
void put(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::remove(to, error);
  fs::create_hard_link(from, to, error);
  if (error) fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) {
    throw base::IoError(346, fmt::format("{} cannot be written: {}; free space on its disk and run the same "
                                         "command again",
                                         to, error.message()));
  }
}

}  // namespace

RemoteRun::RemoteRun(const std::string& uri) : uri_(store::parse_uri(uri)), store_(store::open_store(uri_)) {}

RemoteRun::RemoteRun(store::Uri uri, std::unique_ptr<store::Store> store)
    : uri_(std::move(uri)), store_(std::move(store)) {}

std::string RemoteRun::key_of(int64_t step) const { return step_folder(uri_.path, step); }

std::vector<int64_t> RemoteRun::steps() { return complete_steps(uri_.path, store_->list(uri_.path)); }

std::optional<RemoteOwner> RemoteRun::owner() {
  const std::optional<Object> object = store_->find(uri_.path + "/" + kOwnerName);
  if (!object || object->size > kMostOwner) return std::nullopt;
  std::string text(static_cast<size_t>(object->size), ' ');
  store_->read(*object, 0, std::as_writable_bytes(std::span(text)));
  return parse_owner(text);
}

void RemoteRun::set_owner(const RemoteOwner& owner) {
  const base::TemporaryFolder folder;
  folder.write(kOwnerName, owner_json(owner));
  store_->write(uri_.path + "/" + kOwnerName, folder.path() + "/" + kOwnerName);
}

int64_t RemoteRun::upload(const std::string& run_folder, int64_t step) {
  const std::string folder = step_folder(run_folder, step), key = key_of(step);
  const std::vector<std::string> names = names_in(folder);
  store_->remove(key + "/" + kManifestName);  // of an earlier past: it must not bless other files
  int64_t bytes = 0;
  for (const std::string& name : names) {
    std::error_code gone;
    bytes += static_cast<int64_t>(fs::file_size(folder + "/" + name, gone));
  }
  try {
    store::in_threads(kFilesAtOnce, static_cast<int64_t>(names.size()), [&](int64_t i) {
      const std::string& name = names[static_cast<size_t>(i)];
      store_->write(key + "/" + name, folder + "/" + name);
    });
    store_->write(key + "/" + kManifestName, folder + "/" + kManifestName);
  } catch (const base::IoError&) {
    static_cast<void>(names_in(folder));  // says so if it is gone
    throw;
  }
  return bytes;
}

void RemoteRun::upload_run_files(const std::string& run_folder) {
  for (const char* name : kRunFiles) {
    std::error_code error;
    if (fs::exists(run_folder + "/" + name, error))
      store_->write(uri_.path + "/" + name, run_folder + "/" + name);
  }
}

void RemoteRun::remove(int64_t step, const std::vector<Object>& all) {
  const std::vector<Object> objects = in_step(uri_.path, all, step);
  const std::string manifest = key_of(step) + "/" + kManifestName;
  store_->remove(manifest);
  for (const Object& one : objects) {
    if (one.key != manifest) store_->remove(one.key);
  }
}

void RemoteRun::remove_others(int64_t step, const Retention& retention) {
  const std::vector<Object> all = store_->list(uri_.path);
  const std::map<int64_t, bool> steps = steps_in(uri_.path, all);
  int kept = 1;
  for (auto one = steps.rbegin(); one != steps.rend(); ++one) {
    const auto& [other, whole] = *one;
    if (other == step) continue;
    if (other < step && whole &&
        (++kept <= std::max(retention.keep, 1) || (retention.every > 0 && other % retention.every == 0)))
      continue;
    remove(other, all);
  }
}

void RemoteRun::copy_step(const std::string& run_folder, int64_t step, const std::vector<Object>& all) {
  const std::vector<Object> wanted = in_step(uri_.path, all, step);
  store::ObjectCache& cache = store::own_cache();
  const std::string folder = step_folder(run_folder, step);
  cache.fetch(*store_, uri_, wanted);
  base::make_folders(folder);
  std::error_code error;
  fs::remove(folder + "/" + kManifestName, error);
  for (const Object& one : wanted) {
    const std::string name = place_of(uri_.path, one.key)->second;
    if (name != kManifestName && name.find('/') == std::string::npos)
      put(cache.path_of(uri_, one.key), folder + "/" + name);
  }
  base::write_file_durable(folder + "/" + kManifestName,
                           base::read_file(cache.path_of(uri_, key_of(step) + "/" + kManifestName)));
}

void RemoteRun::copy_run_files(const std::string& run_folder, const std::vector<Object>& all) {
  std::vector<Object> files;
  for (const Object& one : all) {
    const std::string name = one.key.substr(uri_.path.size() + 1);
    const bool of_run = std::find(std::begin(kRunFiles), std::end(kRunFiles), name) != std::end(kRunFiles);
    if (of_run) files.push_back(one);
  }
  store::ObjectCache& cache = store::own_cache();
  cache.fetch(*store_, uri_, files);
  std::error_code error;
  for (const Object& one : files) {
    const std::string to = run_folder + one.key.substr(uri_.path.size());
    if (!fs::exists(to, error))
      base::write_file_durable(to, base::read_file(cache.path_of(uri_, one.key)));  // it is appended to
  }
}

std::optional<int64_t> RemoteRun::restore(const std::string& run_folder, const Restoring& how) {
  const std::vector<Object> all = store_->list(uri_.path);
  std::exception_ptr newest;
  for (const int64_t step : complete_steps(uri_.path, all)) {
    if (step <= how.newer_than) break;
    const std::string folder = step_folder(run_folder, step);
    copy_step(run_folder, step, all);
    try {
      if (how.check) how.check(folder);
    } catch (const CheckpointError& error) {
      if (!newest) newest = std::current_exception();
      if (how.passing) how.passing(error.what());
      std::error_code ignored;
      fs::remove(folder + "/" + kManifestName, ignored);  // first: from then on it is no checkpoint
      fs::remove_all(folder, ignored);
      continue;
    }
    copy_run_files(run_folder, all);
    return step;
  }
  if (newest) std::rethrow_exception(newest);
  return std::nullopt;
}

std::string fetch_model(const std::string& text) {
  const store::Uri uri = store::parse_uri(text);
  return store::fetch_some(uri, [&](const std::vector<Object>& all) {
    const std::vector<int64_t> complete = complete_steps(uri.path, all);
    if (complete.empty() && !steps_in(uri.path, all).empty()) {
      throw CheckpointError(324, uri.shown() +
                                     " has no complete checkpoint yet: let `lockstep train` finish "
                                     "its first upload");
    }
    std::vector<Object> wanted = model_files(uri.path, all);
    if (complete.empty()) return wanted;
    std::erase_if(wanted, [](const Object& one) { return one.key.ends_with(".jsonl"); });
    const std::vector<Object> newest = in_step(uri.path, all, complete.front());
    wanted.insert(wanted.end(), newest.begin(), newest.end());
    return wanted;
  });
}

std::string local_model(const std::string& path) { return store::is_uri(path) ? fetch_model(path) : path; }

}  // namespace lockstep::checkpoint

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/shards.h"
#include "lockstep/checkpoint/step_folders.h"

namespace lockstep::checkpoint {
namespace {

// A run that is stopped right after it resumed saves the step that it came from. The one that stands
// is then worth more than a new one: replacing it could fail and leave none.
bool stands_already(const std::string& folder, const Contents& contents) {
  if (contents.params_hash.empty()) return false;
  try {
    const Opened standing(folder);
    const auto& manifest = standing.manifest();
    return manifest && manifest->step == contents.step && manifest->params_hash == contents.params_hash &&
           manifest->state == contents.state && manifest->recipe_toml == contents.recipe_toml;
  } catch (const base::Error&) {
    return false;
  }
}

void assert_distinct_names(const Contents& contents) {
  std::set<std::string> names;
  for (const auto* tensors : {&contents.model, &contents.optimizer}) {
    for (const HostTensor& one : *tensors)
      LS_ASSERT(names.insert(one.name).second, one.name + " is saved twice");
  }
}

void make_empty_folder(const std::string& run_folder, const std::string& folder) {
  remove_broken(run_folder);  // first, for their room
  if (const std::error_code error = remove_checkpoint(folder)) {
    throw base::IoError(808, fmt::format("{} cannot be replaced: {}; check its permissions, then run again",
                                         folder, error.message()));
  }
  base::make_folders(folder);
  sync_folder(checkpoints_folder(run_folder));
  sync_folder(run_folder);
}

void write_all(const std::string& folder, const Contents& contents) {
  const std::vector<Shard> model = plan_shards("model", contents.model);
  std::vector<FileSummary> files = write_shards(folder, model);
  files.push_back(write_index(folder, model));
  if (!contents.config_json.empty())
    files.push_back(write_text(folder + "/config.json", contents.config_json));
  if (!contents.optimizer.empty()) {
    const std::vector<FileSummary> more = write_shards(folder, plan_shards("optimizer", contents.optimizer));
    files.insert(files.end(), more.begin(), more.end());
  }
  write_manifest(folder, {.step = contents.step,
                          .recipe_toml = contents.recipe_toml,
                          .params_hash = contents.params_hash,
                          .state = contents.state,
                          .files = files});
}

// For people and scripts; nothing in Lockstep trusts it, so a failure is not one of the save.
void write_hint(const std::string& run_folder, const std::string& folder) {
  try {
    write_text(checkpoints_folder(run_folder) + "/latest",
               std::filesystem::path(folder).filename().string() + "\n");
  } catch (const base::IoError&) {
  }
}

}  // namespace

std::string save(const std::string& run_folder, const Contents& contents, int keep) {
  assert_distinct_names(contents);
  const std::string folder = step_folder(run_folder, contents.step);
  if (!stands_already(folder, contents)) {
    make_empty_folder(run_folder, folder);
    try {
      write_all(folder, contents);
    } catch (...) {
      remove_checkpoint(folder);  // gives the room back
      throw;
    }
  }
  write_hint(run_folder, folder);
  remove_older(run_folder, contents.step, std::max(keep, 1));
  return folder;
}

}  // namespace lockstep::checkpoint

#include "lockstep/checkpoint/step_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/safe_path.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoint {

std::string step_name(int64_t step) { return fmt::format("step-{:08d}", step); }

std::optional<int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::optional<int64_t> step = base::leading_number(std::string_view(name).substr(kPrefix.size()));
  return step >= 0 && name == step_name(*step) ? step : std::nullopt;
}

namespace {

namespace fs = std::filesystem;

struct StepFolder {
  int64_t step;
  std::string path;
};

// All folders of the right name, newest first, whole or not.
std::vector<StepFolder> step_folders(const std::string& run_folder) {
  const std::string folder = checkpoints_folder(run_folder);
  std::vector<StepFolder> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (const auto step = step_of(at->path().filename().string()))
      found.push_back({*step, at->path().string()});
  }
  // A run that cannot see its checkpoints must not start over as if it had none.
  if (error && error != std::errc::no_such_file_or_directory) {
    throw base::IoError(809, fmt::format("folder {} cannot be read: {}; check its permissions and its disk",
                                         folder, error.message()));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

// Throws what is wrong with a folder that has a manifest: nothing, as far as names and sizes tell.
void check_whole(const StepFolder& folder) {
  const Manifest manifest = read_manifest(folder.path);
  if (manifest.step != folder.step) {
    throw CheckpointError(304, fmt::format("{}/{} is for step {}; the folder was copied or renamed",
                                           folder.path, kManifestName, manifest.step));
  }
  for (const FileSummary& file : manifest.files) {
    const std::string path = file_inside(folder.path, file.name, kManifestName);
    std::error_code error;
    const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
    if (bytes == file.bytes) continue;
    throw CheckpointError(305, fmt::format("{} is damaged: it has {} bytes, but the manifest says {}", path,
                                           error ? 0 : bytes, file.bytes));
  }
}

bool is_complete(const StepFolder& folder) {
  try {
    check_whole(folder);
    return true;
  } catch (const base::Error&) {
    return false;
  }
}

std::vector<StepFolder> complete_folders(const std::string& run_folder) {
  std::vector<StepFolder> folders = step_folders(run_folder);
  std::erase_if(folders, [](const StepFolder& folder) { return !is_complete(folder); });
  return folders;
}

// A power cut can leave the manifest's name with no bytes behind it. One that is damaged in another
// way is left for its owner to look at.
bool is_broken_save(const StepFolder& folder) {
  const fs::path manifest = fs::path(folder.path) / kManifestName;
  std::error_code error;
  const auto bytes = fs::file_size(manifest, error);
  return error ? error == std::errc::no_such_file_or_directory : bytes == 0;
}

// Whether its save ended: `latest` is written behind the manifest.
bool was_whole(const std::string& run_folder, const StepFolder& folder) {
  const base::ReadResult latest = base::try_read_file(checkpoints_folder(run_folder) + "/latest", 4096);
  return base::trimmed(latest.text) == step_name(folder.step);
}

// A manifest whose end was never written: its save was killed at the last moment.
bool is_cut_short(const StepFolder& folder) {
  const base::ReadResult manifest = base::try_read_file(folder.path + "/" + kManifestName);
  return manifest.problem.empty() && !manifest.text.ends_with("}\n");
}

}  // namespace

std::string checkpoints_folder(const std::string& run_folder) { return run_folder + "/checkpoints"; }

std::string step_folder(const std::string& run_folder, int64_t step) {
  return checkpoints_folder(run_folder) + "/" + step_name(step);
}

int remove_checkpoint(const std::string& folder, const Disk& disk) {
  std::error_code error;
  const std::string manifest = folder + "/" + kManifestName;
  if (!fs::is_symlink(folder, error) && fs::exists(manifest, error) && disk.remove(manifest) == 0) {
    // Where the folder cannot be synced the order of removal is not certain after a power cut; a folder with
    // files missing is not listed.
    disk.sync_folder(folder);
  }
  return disk.remove(folder);
}

void remove_broken(const std::string& run_folder, const Disk& disk) {
  for (const StepFolder& folder : step_folders(run_folder)) {
    if (is_broken_save(folder)) remove_checkpoint(folder.path, disk);
  }
}

void remove_older(const std::string& run_folder, int64_t step, const Retention& retention, const Disk& disk) {
  int kept = 1;
  for (const StepFolder& folder : complete_folders(run_folder)) {
    if (folder.step >= step || ++kept <= std::max(retention.keep, 1)) continue;
    if (retention.every > 0 && folder.step % retention.every == 0) continue;
    remove_checkpoint(folder.path, disk);
  }
}

std::vector<std::string> list(const std::string& run_folder) {
  std::vector<std::string> paths;
  for (const StepFolder& folder : complete_folders(run_folder)) paths.push_back(folder.path);
  return paths;
}

std::vector<Damaged> damaged(const std::string& run_folder) {
  std::vector<Damaged> found;
  for (const StepFolder& folder : step_folders(run_folder)) {
    if (is_broken_save(folder)) {
      if (was_whole(run_folder, folder))
        found.push_back({fmt::format("{} has lost its {}, which was written when the save completed",
                                     folder.path, kManifestName)});
      continue;
    }
    try {
      check_whole(folder);
      break;
    } catch (const base::Error& error) {
      found.push_back({error.what(), is_cut_short(folder)});
    }
  }
  return found;
}

}  // namespace lockstep::checkpoint

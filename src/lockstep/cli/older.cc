#include "lockstep/cli/older.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/cli/print.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

int name_damaged(const std::string& run_folder, const std::vector<std::string>& usable) {
  int count = 0, named = 0;
  for (const checkpoint::Damaged& one : checkpoint::damaged(run_folder)) {
    remark("{}\n", one.why);
    ++named;
    if (!one.unfinished) ++count;
  }
  if (named > 0 && !usable.empty()) remark("taking the one before it: {}\n", usable.front());
  return count;
}

void offer_older(const std::string& checkpoint_folder) {
  const fs::path path = fs::path(checkpoint_folder).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  if (folder.parent_path().filename() != "checkpoints") return;
  const std::vector<std::string> whole = checkpoint::list(folder.parent_path().parent_path().string());
  const auto older = std::find_if(whole.begin(), whole.end(), [&](const std::string& one) {
    const std::string name = fs::path(one).filename(), refused = folder.filename();  // step-00000100
    return std::pair(name.size(), name) < std::pair(refused.size(), refused);
  });
  if (older != whole.end()) remark("the one before it is complete: {}\n", *older);
}

std::vector<std::string> folders_to_read(const std::string& folder) {
  std::vector<std::string> folders = checkpoint::model_folders(folder);
  if (folders.front() != folder) name_damaged(folder, folders);
  return folders;
}

std::string read_newest(const std::string& named,
                        const std::function<void(const std::string& folder)>& read) {
  const std::vector<std::string> folders = folders_to_read(named);
  const auto passing = [](const std::string& why, const std::string& next) {
    remark("{}\ntaking the one before it: {}\n", why, next);
  };
  try {
    return checkpoint::for_first_usable(folders, read, passing).folder;
  } catch (const base::Error& error) {
    if (checkpoint::is_unusable(error)) offer_older(named);
    throw;
  }
}

void name_passed_over(const checkpoint::Taken& taken) {
  for (const std::string& why : taken.passed_over) remark("{}\n", why);
  if (!taken.passed_over.empty()) remark("taking the one before it: {}\n", taken.folder);
}

}  // namespace lockstep::cli

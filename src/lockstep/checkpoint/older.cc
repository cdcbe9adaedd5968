#include "lockstep/checkpoint/older.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

int name_damaged(const std::string& run_folder, const std::vector<std::string>& usable, const Say& say) {
  int count = 0, named = 0;
  for (const Damaged& one : damaged(run_folder)) {
    say(one.why);
    ++named;
    if (!one.unfinished) ++count;
  }
  if (named > 0 && !usable.empty()) say("using the previous one: " + usable.front());
  return count;
}

void offer_older(const std::string& checkpoint_folder, const Say& say) {
  const fs::path path = fs::path(checkpoint_folder).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  if (folder.parent_path().filename() != "checkpoints") return;
  const std::vector<std::string> whole = list(folder.parent_path().parent_path().string());
  const auto older = std::find_if(whole.begin(), whole.end(), [&](const std::string& one) {
    const std::string name = fs::path(one).filename(), refused = folder.filename();  // step-00000100
    return std::pair(name.size(), name) < std::pair(refused.size(), refused);
  });
  if (older != whole.end()) say("the previous one is complete: " + *older);
}

std::vector<std::string> folders_to_read(const std::string& folder, const Say& say) {
  std::vector<std::string> folders = model_folders(folder);
  if (folders.front() != folder) name_damaged(folder, folders, say);
  return folders;
}

std::string read_newest(const std::string& named, const std::function<void(const std::string& folder)>& read,
                        const Say& say) {
  const std::vector<std::string> folders = folders_to_read(named, say);
  const auto passing = [&](const std::string& why, const std::string& next) {
    say(why);
    say("using the previous one: " + next);
  };
  try {
    return for_first_usable(folders, read, passing).folder;
  } catch (const base::Error& error) {
    if (is_unusable(error)) offer_older(named, say);
    throw;
  }
}

void name_passed_over(const Taken& taken, const Say& say) {
  for (const std::string& why : taken.passed_over) say(why);
  if (!taken.passed_over.empty()) say("using the previous one: " + taken.folder);
}

}  // namespace lockstep::checkpoint

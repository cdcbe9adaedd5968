#include "lockstep/checkpoint/usable.h"

#include <exception>
#include <filesystem>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/remote.h"
#include "lockstep/checkpoint/step_folders.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

std::vector<std::string> model_folders(const std::string& named) {
  const std::string folder = local_model(named);
  std::error_code error;
  if (!fs::is_directory(checkpoints_folder(folder), error)) return {folder};
  std::vector<std::string> whole = list(folder);
  if (whole.empty()) {
    throw CheckpointError(
        324, folder + " has no complete checkpoint yet: let `lockstep train` finish, or stop it with Ctrl-C");
  }
  return whole;
}

bool is_unusable(const base::Error& error) { return dynamic_cast<const CheckpointError*>(&error) != nullptr; }

Taken for_first_usable(const std::vector<std::string>& folders,
                       const std::function<void(const std::string& folder)>& read,
                       const std::function<void(const std::string& why, const std::string& next)>& passing) {
  Taken taken;
  std::exception_ptr newest;
  for (size_t k = 0; k < folders.size(); ++k) {
    try {
      read(folders[k]);
      taken.folder = folders[k];
      return taken;
    } catch (const base::Error& error) {
      if (!is_unusable(error)) throw;
      if (!newest) newest = std::current_exception();
      taken.passed_over.push_back(error.what());
      if (passing && k + 1 < folders.size()) passing(error.what(), folders[k + 1]);
    }
  }
  std::rethrow_exception(newest);
}

bool has_saved(const std::string& run_folder) {
  std::error_code error;  // written behind the manifest of every save
  return fs::exists(checkpoints_folder(run_folder) + "/latest", error);
}

}  // namespace lockstep::checkpoint

#include "lockstep/training/request.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/rank_memory.h"

namespace lockstep::training {

namespace {

std::string folder_of(const recipe::Recipe& recipe, const TrainOptions& options) {
  return options.folder.empty() ? recipe.log.folder + "/" + recipe.run.name : options.folder;
}

// The folder itself or the nearest above it that exists, where that is no folder; else empty.
std::string file_in_the_way(const std::string& folder) {
  using std::filesystem::file_type;
  std::error_code error;
  for (std::filesystem::path at = folder; !at.empty(); at = at.parent_path()) {
    const file_type type = std::filesystem::status(at, error).type();
    if (type == file_type::directory || at == at.parent_path()) return "";
    if (type != file_type::not_found && type != file_type::none) return at.string();
  }
  return "";
}

}  // namespace

Request::Request(const recipe::Resolved& recipe, const TrainOptions& wanted, TrainObserver& told)
    : said(recipe), options(wanted), observer(told), folder(folder_of(recipe.recipe, wanted)) {
  const std::string in_the_way = file_in_the_way(folder);
  if (in_the_way.empty()) return;
  if (in_the_way == folder)
    throw base::ConfigError(132, fmt::format("the run folder {} exists and is no folder; choose another with "
                                             "--run or run.name, or move it away",
                                             base::quoted(folder)));
  throw base::ConfigError(132, fmt::format("the run folder {} cannot be created: {} is no folder; choose "
                                           "another place with --run or log.folder, or move it away",
                                           base::quoted(folder), base::quoted(in_the_way)));
}

bool Request::starts_over() const { return options.resume == "never" && !launch::started_again(); }

run::Own Request::own() const {
  if (options.data && !dataset_) dataset_ = options.data.open(said.recipe);
  return {.dataset = dataset_, .build_model = options.model};
}

bool only_saves() { return base::environment("LOCKSTEP_SAVE_ONLY").has_value(); }

}  // namespace lockstep::training

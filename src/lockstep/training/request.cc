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

}  // namespace

Request::Request(const recipe::Resolved& recipe, const TrainOptions& wanted, TrainObserver& told)
    : said(recipe), options(wanted), observer(told), folder(folder_of(recipe.recipe, wanted)) {
  std::error_code error;
  const auto there = std::filesystem::status(folder, error).type();
  if (there == std::filesystem::file_type::not_found || there == std::filesystem::file_type::none ||
      there == std::filesystem::file_type::directory)
    return;
  throw base::ConfigError(
      132, fmt::format("the run folder {} exists and is no folder; choose another with --run or run.name, "
                       "or move it away",
                       base::quoted(folder)));
}

bool Request::starts_over() const { return options.resume == "never" && !launch::started_again(); }

run::Own Request::own() const {
  if (options.data && !dataset_) dataset_ = options.data.open(said.recipe);
  return {.dataset = dataset_, .build_model = options.model};
}

bool only_saves() { return base::environment("LOCKSTEP_SAVE_ONLY").has_value(); }

}  // namespace lockstep::training

// lockstep plan --loss: the loss to expect, by a scaling law or from one finished smaller run.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/cli/plan/report.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/folder/run_folder.h"

namespace lockstep::cli {

namespace {

constexpr double kFar = 1000;  // times the computation: beyond it a law is a guess

// What a run folder says of a run that is done.
plan::TrainedPoint point_of(const std::string& folder) {
  const auto refuse = [&](const char* why) {
    throw base::ConfigError(
        580, fmt::format("--loss {}: {}; name the folder of a finished run, or a law such as chinchilla",
                         base::quoted(folder), why));
  };
  if (!std::filesystem::exists(folder + "/config.toml") || !std::filesystem::exists(folder + "/record.json"))
    refuse("it is no run folder");
  const recipe::Recipe recipe = recipe::read_recipe({.file = folder + "/config.toml"}).recipe;
  const nlohmann::json record =
      nlohmann::json::parse(base::read_file(folder + "/record.json"), nullptr, false);
  const run::RecordedEnd end = run::recorded_end(folder, recipe.run.steps);
  if (!record.is_object() || !record.value("parameters", nlohmann::json()).is_number())
    refuse("its record.json does not say how many parameters it has");
  if (!end.loss && !end.eval_loss) refuse("its metrics.jsonl has no loss");
  return {.parameters = record["parameters"].get<double>(),
          .tokens = static_cast<double>(recipe.run.steps * recipe.batch.global * recipe.data.seq_len),
          .loss = end.eval_loss.value_or(end.loss.value_or(0))};
}

}  // namespace

ExpectedLoss loss_to_expect(const std::string& words, const run::Forecast& forecast) {
  const bool folder = words.find('=') == std::string::npos && words != "chinchilla";
  std::optional<plan::TrainedPoint> finished;
  if (folder) finished = point_of(words);
  std::vector<plan::LossLaw> laws = plan::published_laws();
  if (!folder && words != "chinchilla") laws = {plan::parse_law(words)};
  const plan::TrainedPoint asked{.parameters = static_cast<double>(forecast.parameters),
                                 .tokens = forecast.units_per_step * static_cast<double>(forecast.steps)};
  ExpectedLoss expected{.estimate = plan::expect_loss(asked, laws, finished)};
  std::vector<std::string> names;
  for (const plan::LossLaw& law : laws) names.push_back(law.name);
  expected.basis = fmt::format("{} for {} parameters and {} tokens", base::join(names, " and "),
                               base::human_count(asked.parameters), base::human_count(asked.tokens));
  if (finished) {
    expected.basis += fmt::format(", shifted to pass through {} ({} parameters, {} tokens, loss {:.3f})",
                                  words, base::human_count(finished->parameters),
                                  base::human_count(finished->tokens), finished->loss);
    if (expected.estimate.stretch > kFar)
      expected.basis += fmt::format("; that run is {} times smaller, which is far to extrapolate",
                                    base::human_count(expected.estimate.stretch));
  } else {
    expected.basis += "; other data and tokenizers shift it: give a finished run of yours instead";
  }
  return expected;
}

}  // namespace lockstep::cli

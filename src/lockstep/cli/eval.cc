// lockstep eval: the loss of any checkpoint or Hugging Face folder on any data.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/older.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/evaluate.h"

namespace lockstep::cli {

namespace {

// What the checkpoint was trained with, where it says so, changed by the words; one rank, nothing trained.
base::Resolved recipe_for(const std::string& folder, const std::vector<std::string>& words) {
  const checkpoint::Opened opened(folder);
  base::RecipeSource source;
  if (opened.manifest()) source.text = opened.manifest()->recipe_toml;
  source.overrides = words;
  base::Resolved resolved = base::read_recipe(source);
  base::Recipe& recipe = resolved.recipe;
  const auto said = [&](const char* key) { return resolved.origin.at(key) == "command line"; };
  recipe.model.from = folder;
  recipe.parallel = {};
  recipe.optim.name = "sgd";  // the least to keep beside the weights
  if (!opened.manifest()) {   // else as the run itself evaluated
    if (!said("batch.global")) recipe.batch.global = 8;
    if (!said("batch.slices")) recipe.batch.slices = 1;
    if (!said("batch.strands")) recipe.batch.strands = 1;
  }
  // A file that is named for this evaluation is evaluated on whole.
  if (said("data.path") && !said("data.eval_path")) recipe.data.eval_path = recipe.data.path;
  if (said("data.eval_path") && recipe.data.path.empty()) recipe.data.path = recipe.data.eval_path;
  return resolved;
}

// A script that looks at the exit code alone must not take such a model for a good one.
int judge(double loss, const std::string& folder) {
  if (std::isfinite(loss)) return 0;
  throw base::RunError(604, folder +
                                ": its loss is not a finite number: its weights are not, or they overflow "
                                "in precision.compute; evaluate an older checkpoint, or in fp32");
}

int evaluate(const std::string& folder, const std::vector<std::string>& words, bool json) {
  base::Resolved resolved = recipe_for(folder, words);
  const bool all =
      !resolved.recipe.data.eval_path.empty() && resolved.origin.at("log.eval_batches") != "command line";
  run::Session session(run::make_plan(std::move(resolved), {}));
  const run::Plan& plan = session.plan;
  const int64_t there = plan.dataset->samples(data::Split::eval);
  if (there == 0) {
    throw base::ConfigError(327,
                            "the data has nothing held out to evaluate on: name a file with data.eval_path, "
                            "or set data.eval_fraction");
  }
  const int64_t samples_a_batch = plan.layout.slice.samples;
  const int64_t batches =
      all ? (there + samples_a_batch - 1) / samples_a_batch : plan.recipe().log.eval_batches;
  const int64_t samples = std::min(there, batches * samples_a_batch);
  double loss = run::Evaluator(session).run(batches).value();
  if (std::isnan(loss)) loss = std::numeric_limits<double>::quiet_NaN();  // its sign is the processor's whim
  const double perplexity = std::exp(loss);
  if (json) {
    print("{}\n", nlohmann::json{{"model", folder},
                                 {"data", plan.dataset->describe()},
                                 {"samples", samples},
                                 {"seq_len", plan.recipe().data.seq_len},
                                 {"compute", plan.recipe().precision.compute},
                                 {"loss", loss},
                                 {"loss_hex", fmt::format("{:a}", loss)},
                                 {"perplexity", perplexity}}
                      .dump());
    return judge(loss, folder);
  }
  print("loss {:.6f}, perplexity {:.4f} on {} samples of {} tokens ({})\n", loss, perplexity, samples,
        plan.recipe().data.seq_len, plan.dataset->describe());
  if (const auto floor = plan.dataset->entropy_floor()) print("the data's entropy is {:.6f}\n", *floor);
  return judge(loss, folder);
}

}  // namespace

int eval_command(Arguments& arguments) {
  std::string model;
  std::vector<std::string> words;
  bool json = false;
  arguments.positional("DIR", model, "a run, a checkpoint or a Hugging Face folder");
  arguments.rest("key=value", words, "what differs from the recipe that it was trained with");
  arguments.flag("--json", json, "print the numbers as JSON, loss_hex with every bit");
  arguments.example("lockstep eval runs/first", "the newest checkpoint on its own held-out data");
  arguments.example("lockstep eval llama-1b data.kind=tokens data.path=test.bin data.seq_len=2048",
                    "a Hugging Face model on a file of its tokens");
  arguments.example("lockstep eval runs/first log.eval_batches=1000", "on more of it");
  if (!arguments.parse()) return 0;
  if (model.empty()) throw base::ConfigError(109, "eval takes a folder: lockstep eval DIR [key=value ...]");
  int code = 0;
  read_newest(model, [&](const std::string& folder) { code = evaluate(folder, words, json); });
  return code;
}

}  // namespace lockstep::cli

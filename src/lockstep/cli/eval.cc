// lockstep eval: the loss of any checkpoint or Hugging Face folder on any data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/older.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/model_recipe.h"
#include "lockstep/cli/print.h"
#include "lockstep/data/mix.h"
#include "lockstep/run/loop/evaluate.h"
#include "lockstep/run/session/load.h"

namespace lockstep::cli {

namespace {

// What decides a batch of a Hugging Face folder, where the user has not said it. A checkpoint is evaluated as
// its run did, unless another batch is asked for.
void resolve_batch(FolderModel& model) {
  recipe::Recipe::Batch& batch = model.resolved.recipe.batch;
  const bool said = model.said("batch.global") || model.said("batch.slices") || model.said("batch.strands");
  if (model.trained_here && !said) return;
  if (!model.said("batch.strands")) batch.strands = 1;
  if (!model.said("batch.slices") && (!model.trained_here || model.said("batch.global")))
    batch.slices = batch.strands;
  if (!model.said("batch.global") && !model.trained_here) {
    const int64_t slices = batch.slices.is_auto ? 1 : batch.slices.value;
    batch.global = base::round_up(8, slices);
  }
}

// A file that is named for this evaluation is evaluated on whole, and so is one that the run held out.
data::Use resolve_data(FolderModel& model) {
  recipe::Recipe& recipe = model.resolved.recipe;
  if (model.said("data.path") && !model.said("data.eval_path")) recipe.data.eval_path.clear();
  if (model.said("data.path") || model.said("data.eval_path")) {  // instead of the sources it was trained on
    if (!recipe.data.mix.empty() && recipe.data.kind == data::kMix) recipe.data.kind = "auto";
    recipe.data.mix.clear();
  }
  if (recipe.data.path.empty()) recipe.data.path = recipe.data.eval_path;  // it tells the kind
  run::adopt_model(model.resolved);
  adopt_tokenizer(model);
  if (!model.trained_here && !model.said("data.seq_len") && !recipe.model.context.is_auto)
    recipe.data.seq_len = std::min(recipe.data.seq_len, recipe.model.context.value);
  const bool whole = model.said("data.path") || !recipe.data.eval_path.empty();
  return whole ? data::Use::evaluate : data::Use::train;
}

// A script that looks at the exit code alone must not take such a model for a good one.
int judge(double loss, const std::string& folder) {
  if (std::isfinite(loss)) return 0;
  throw base::RunError(604,
                       folder +
                           ": the loss is not finite: the weights are not, or values overflow in "
                           "precision.compute; evaluate an older checkpoint, or use precision.compute=fp32");
}

int evaluate(const std::string& folder, const std::vector<std::string>& words, bool json) {
  FolderModel model = folder_model(folder, words);
  resolve_batch(model);
  const data::Use use = resolve_data(model);
  const bool all = use == data::Use::evaluate && !model.said("log.eval_batches");
  run::Session session(run::make_plan(std::move(model.resolved), {}, {.data_use = use}));
  const run::Plan& plan = session.plan;
  const int64_t there = plan.dataset->samples(data::Split::eval);
  if (there == 0) {
    throw base::ConfigError(327,
                            "the data has no held-out samples to evaluate on; set data.eval_path to a file, "
                            "or set data.eval_fraction");
  }
  const int64_t samples_a_batch = plan.layout.slice.samples;
  const int64_t batches = all ? base::divide_up(there, samples_a_batch) : plan.recipe().log.eval_batches;
  const int64_t samples = std::min(there, batches * samples_a_batch);
  double loss = run::Evaluator(session).run(batches).value();
  if (std::isnan(loss)) loss = std::numeric_limits<double>::quiet_NaN();  // its sign is the processor's whim
  const double perplexity = std::exp(loss);
  if (json) {
    print("{}\n", nlohmann::json{{"model", folder},
                                 {"data", plan.dataset->describe_eval()},
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
        plan.recipe().data.seq_len, plan.dataset->describe_eval());
  if (const auto floor = plan.dataset->entropy_floor()) print("the data's entropy is {:.6f}\n", *floor);
  return judge(loss, folder);
}

}  // namespace

int eval_command(Arguments& arguments) {
  std::string model;
  std::vector<std::string> words;
  bool json = false;
  arguments.positional("DIR", model, "a run, a checkpoint or a Hugging Face folder");
  arguments.rest("key=value", words, "overrides of the recipe it was trained with");
  arguments.flag("--json", json, "print the results as JSON, with every bit of the loss in loss_hex");
  arguments.example("lockstep eval runs/first", "the newest checkpoint on its own held-out data");
  arguments.example("lockstep eval llama-1b data.kind=tokens data.path=test.bin data.seq_len=2048",
                    "a Hugging Face model on a file of its tokens");
  arguments.example("lockstep eval llama-1b data.path=book.txt", "on text, by the folder's own tokenizer");
  arguments.example("lockstep eval runs/first log.eval_batches=1000", "on more of it");
  if (!arguments.parse()) return 0;
  if (model.empty()) throw base::ConfigError(109, "eval needs a folder: lockstep eval DIR [key=value ...]");
  int code = 0;
  checkpoint::read_newest(
      model, [&](const std::string& folder) { code = evaluate(folder, words, json); }, remark_line);
  return code;
}

}  // namespace lockstep::cli

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
#include "lockstep/cli/text/eval_modes.h"
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

// What a run has tuned on pairs is evaluated on other data, or by the run itself.
void refuse_pairs(const recipe::Recipe& recipe) {
  if (recipe.tune.loss != "dpo" && recipe.data.kind != "preference") return;
  throw base::ConfigError(
      393,
      "pairs of answers are evaluated against the weights that their run starts with, which only the run "
      "has: "
      "see eval_loss in its metrics.jsonl; or evaluate on text or conversations with data.kind=auto "
      "data.path=FILE");
}

int evaluate(const std::string& folder, const std::vector<std::string>& words, bool json) {
  FolderModel model = folder_model(folder, words);
  resolve_batch(model);
  const data::Use use = resolve_data(model);
  refuse_pairs(model.resolved.recipe);
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
    return judge_finite(std::isfinite(loss), folder);
  }
  print("loss {:.6f}, perplexity {:.4f} on {} samples of {} tokens ({})\n", loss, perplexity, samples,
        plan.recipe().data.seq_len, plan.dataset->describe_eval());
  if (const auto floor = plan.dataset->entropy_floor()) print("the data's entropy is {:.6f}\n", *floor);
  return judge_finite(std::isfinite(loss), folder);
}

struct Wanted {
  std::string model, choices, on_error = "stop", delimiter = " ";
  std::vector<std::string> words;
  int64_t stride = 0;
  bool json = false, by_document = false, add_bos = false;
};

void check(const Wanted& wanted) {
  const auto require = [](bool holds, const std::string& sentence) {
    if (!holds) throw base::ConfigError(109, sentence);
  };
  require(!wanted.model.empty(), "eval needs a folder: lockstep eval DIR [key=value ...]");
  require(!wanted.by_document || wanted.choices.empty(), "give --by-document or --choices, not both");
  require(wanted.stride == 0 || wanted.by_document, "--stride is for --by-document; add it");
  require(!wanted.add_bos || !wanted.choices.empty(), "--add-bos is for --choices; add it");
  require(wanted.on_error == "stop" || wanted.on_error == "skip",
          fmt::format("--on-error {}: stop or skip is expected", base::quoted(wanted.on_error)));
}

}  // namespace

void BadLines::tell(const std::string& sentence) {
  constexpr int64_t kNamed = 20;
  if (!skips_)
    throw base::DataError(334, sentence + "; correct the line, or skip such lines with --on-error skip");
  if (++count_ <= kNamed) remark("skipped: {}\n", sentence);
}

void BadLines::report() const {
  if (count_ > 0) remark("{} lines were skipped because they cannot be used\n", count_);
}

int judge_finite(bool finite, const std::string& folder) {
  if (finite) return 0;
  throw base::RunError(604,
                       folder +
                           ": the loss is not finite: the weights are not, or values overflow in "
                           "precision.compute; evaluate an older checkpoint, or use precision.compute=fp32");
}

int eval_command(Arguments& arguments) {
  Wanted wanted;
  std::string adapter;
  arguments.positional("DIR", wanted.model, "a run, a checkpoint or a Hugging Face folder");
  arguments.rest("key=value", wanted.words, "overrides of the recipe it was trained with");
  arguments.option("--adapter", adapter, "a LoRA adapter to use with the model: PEFT's files, or a LoRA run");
  arguments.flag("--by-document", wanted.by_document,
                 "loss, perplexity and bits per byte of each document of data.path");
  arguments.option(
      "--stride", wanted.stride,
      "with --by-document: tokens from one window of a long document to the next; default: half a window");
  arguments.option(
      "--choices", wanted.choices,
      "JSONL file of questions (context, choices, answer) or of completions (prompt, completion): "
      "log-likelihoods and accuracy");
  arguments.option("--delimiter", wanted.delimiter,
                   "with --choices: text between a context and a choice; default: a space");
  arguments.flag("--add-bos", wanted.add_bos,
                 "with --choices: begin contexts with what the tokenizer adds to a text");
  arguments.option("--on-error", wanted.on_error, "what lines that cannot be used do: stop, skip");
  arguments.flag(
      "--json", wanted.json,
      "print the results as JSON, with every bit of the loss in loss_hex; by document or line: a line each");
  arguments.example("lockstep eval runs/first", "the newest checkpoint on its own held-out data");
  arguments.example("lockstep eval llama-1b data.kind=tokens data.path=test.bin data.seq_len=2048",
                    "a Hugging Face model on a file of its tokens");
  arguments.example("lockstep eval llama-1b data.path=book.txt", "on text, by the folder's own tokenizer");
  arguments.example("lockstep eval runs/first log.eval_batches=1000", "on more of it");
  arguments.example("lockstep eval llama-1b data.path=docs.jsonl --by-document", "each document by itself");
  arguments.example("lockstep eval llama-1b --choices questions.jsonl", "multiple choice");
  if (!arguments.parse()) return 0;
  check(wanted);
  wanted.words = with_adapter(adapter, std::move(wanted.words));
  const bool skips = wanted.on_error == "skip";
  if (wanted.by_document)
    return evaluate_documents(wanted.model, wanted.words, {wanted.stride, skips, wanted.json});
  if (!wanted.choices.empty()) {
    return evaluate_choices(wanted.model, wanted.words,
                            {.file = wanted.choices,
                             .delimiter = wanted.delimiter,
                             .add_bos = wanted.add_bos,
                             .skips = skips,
                             .json = wanted.json});
  }
  int code = 0;
  checkpoint::read_newest(
      wanted.model, [&](const std::string& folder) { code = evaluate(folder, wanted.words, wanted.json); },
      remark_line);
  return code;
}

}  // namespace lockstep::cli

// lockstep generate: samples from a run's newest checkpoint, or from any model in a folder.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/older.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/model_recipe.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/tools/generate.h"
#include "lockstep/text/utf8.h"
#include "lockstep/training/stop_signal.h"

namespace lockstep::cli {

namespace {

double number(const std::string& option, const std::string& text) {
  const std::optional<double> value = base::parse_number<double>(text);
  if (!value || !(*value >= 0)) {
    throw base::ConfigError(
        109, fmt::format("{} {}: expected a number of at least 0, for example {} 0.8", option, text, option));
  }
  return *value;
}

// As small a batch as can be: generation trains nothing, and reads no data either.
run::Plan plan_of(FolderModel& model) {
  recipe::Recipe& recipe = model.resolved.recipe;
  run::adopt_model(model.resolved);
  recipe.batch.global = 1;
  recipe.data.pack = false;
  recipe.batch.slices = recipe.batch.strands = 1;
  if (!model.trained_here && !model.said("data.kind")) recipe.data.kind = "tokens";
  adopt_tokenizer(model);
  constexpr int64_t kShort = 16;  // what fp8 multiplies at least
  recipe.data.seq_len = std::min(recipe.data.seq_len, kShort);
  return run::make_plan(std::move(model.resolved), {}, {.reads_data = false});
}

// What a text begins with that nobody begins.
std::vector<int32_t> start_of(const data::Dataset& dataset, const FolderModel& model) {
  const bool known = model.first_token >= 0 && model.first_token < dataset.vocab();
  return known ? std::vector<int32_t>{static_cast<int32_t>(model.first_token)} : dataset.start();
}

struct Wanted {
  std::string folder, prompt;
  std::vector<std::string> words;  // key=value
  run::SamplingOptions sampling;
  bool json = false;
};

// Draws, and unless all is to be printed at the end, prints as it draws.
int draw_text(const Wanted& wanted, const std::string& checkpoint) {
  FolderModel model = folder_model(checkpoint, wanted.words);
  run::Session session(plan_of(model));
  if (!session.plan.model->predicts_tokens)
    throw base::ConfigError(163, "this model does not predict tokens");
  run::Generator generator(session);
  const data::Dataset& dataset = *session.plan.dataset;
  std::vector<int32_t> text = dataset.encode(wanted.prompt);
  const bool begun = !text.empty();
  if (!begun) text = start_of(dataset, model);
  const size_t hidden = begun ? 0 : text.size();
  std::string shown = dataset.decode(std::span(text).subspan(hidden));
  size_t printed = 0;
  const auto show_until = [&](size_t end) {
    if (wanted.json || end <= printed) return;
    print("{}", shown.substr(printed, end - printed));
    std::fflush(stdout);
    printed = end;
  };
  show_until(text::settled_size(shown));
  training::StopSignal signal;
  signal.arm();
  generator.run(text, wanted.sampling, [&](int32_t token) {
    text.push_back(token);
    // Decoding from the start keeps spaces right; only what is new is printed.
    const std::string whole = dataset.decode(std::span<const int32_t>(text).subspan(hidden));
    shown = whole;
    show_until(text::settled_size(shown));
    return signal.value().load() == 0;
  });
  const std::optional<double> accepted = dataset.acceptance(text);
  if (wanted.json) {
    nlohmann::json out{{"run", wanted.folder}, {"checkpoint", checkpoint}, {"text", shown}, {"tokens", text}};
    if (accepted) out["accepted"] = *accepted;
    print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  show_until(shown.size());
  print("\n");
  std::fflush(stdout);
  if (accepted) remark("the grammar accepts {:.0f} % of the complete sentences\n", *accepted * 100);
  return 0;
}

}  // namespace

int generate_command(Arguments& arguments) {
  Wanted wanted;
  std::string run, adapter, temperature = "1";
  run::SamplingOptions& options = wanted.sampling;
  int64_t seed = 1;
  arguments.positional("DIR", wanted.folder,
                       "a run, a checkpoint or a Hugging Face folder; default: runs/first");
  arguments.rest("key=value", wanted.words, "overrides of the recipe it was trained with");
  arguments.option("--run", run, "same as DIR");
  arguments.option("--adapter", adapter, "a LoRA adapter to use with the model: PEFT's files, or a LoRA run");
  arguments.option("--prompt", wanted.prompt, "text to continue");
  arguments.option("--tokens", options.tokens, "number of tokens to generate");
  arguments.option("--temperature", temperature,
                   "0: always the most likely token (greedy); 1: sample from the model's distribution");
  arguments.option("--top-k", options.top_k, "sample only from the k most likely tokens; 0: all");
  arguments.option("--seed", seed, "random seed");
  arguments.flag("--json", wanted.json, "print text and tokens as JSON");
  arguments.example("lockstep generate runs/first", "text from the default recipe's model");
  arguments.example("lockstep generate --prompt \"this dog\" --tokens 20", "twenty words that follow these");
  arguments.example("lockstep generate llama-1b --prompt \"The dog\"",
                    "a Hugging Face folder, by its own tokenizer");
  if (!arguments.parse()) return 0;
  if (options.tokens < 1) throw base::ConfigError(109, "--tokens must be at least 1");
  if (options.top_k < 0) throw base::ConfigError(109, "--top-k must be at least 0; 0 means all");
  options.temperature = number("--temperature", temperature);
  options.seed = static_cast<uint64_t>(seed);
  if (wanted.folder.find('=') != std::string::npos && !std::filesystem::exists(wanted.folder))
    wanted.words.insert(wanted.words.begin(), std::exchange(wanted.folder, ""));  // the first word is a key
  if (!run.empty() && !wanted.folder.empty() && run != wanted.folder) {
    throw base::ConfigError(109, fmt::format("give one folder, not both {} and --run {}",
                                             base::quoted(wanted.folder), base::quoted(run)));
  }
  if (wanted.folder.empty()) wanted.folder = run.empty() ? "runs/first" : run;
  wanted.words = with_adapter(adapter, std::move(wanted.words));
  std::error_code error;
  if (!std::filesystem::is_directory(wanted.folder, error)) {
    throw base::ConfigError(162, fmt::format("{} is not a folder; expected a run, a checkpoint or a Hugging "
                                             "Face folder, for example lockstep generate runs/first",
                                             base::quoted(wanted.folder, 200)));
  }
  int code = 0;
  checkpoint::read_newest(
      wanted.folder, [&](const std::string& folder) { code = draw_text(wanted, folder); }, remark_line);
  return code;
}

}  // namespace lockstep::cli

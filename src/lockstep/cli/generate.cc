// lockstep generate: samples from a run's newest checkpoint.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/older.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/stop_signal.h"
#include "lockstep/plan/layout.h"
#include "lockstep/run/generate.h"
#include "lockstep/run/run_folder.h"
#include "lockstep/run/snapshot.h"

namespace lockstep::cli {

namespace {

double number(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(value >= 0)) {
    throw base::ConfigError(
        109, fmt::format("{} {}: a number of at least 0 is expected, as in {} 0.8", option, text, option));
  }
  return value;
}

// The run's own recipe, with as small a batch as can be: generation trains nothing.
run::Plan plan_of(const std::string& folder) {
  base::Resolved resolved = base::read_recipe({.file = folder + "/config.toml", .overrides = {}});
  plan::take_layout_off(resolved.recipe);  // one rank holds it all
  resolved.recipe.batch.global = 1;
  resolved.recipe.batch.slices = resolved.recipe.batch.strands = 1;
  return run::make_plan(std::move(resolved), {});
}

}  // namespace

int generate_command(Arguments& arguments) {
  std::string folder = "runs/first", prompt, temperature = "1";
  run::SamplingOptions options;
  int64_t seed = 1;
  bool json = false;
  arguments.option("--run", folder, "the run folder");
  arguments.option("--prompt", prompt, "text to begin with");
  arguments.option("--tokens", options.tokens, "how many tokens to draw");
  arguments.option("--temperature", temperature,
                   "0 always takes the likeliest token, 1 samples as the model says");
  arguments.option("--top-k", options.top_k, "only among the k likeliest; 0: all");
  arguments.option("--seed", seed, "another seed draws another text");
  arguments.flag("--json", json, "print text and tokens as JSON");
  arguments.example("lockstep generate --run runs/first", "text from the default recipe's model");
  arguments.example("lockstep generate --prompt \"this dog\" --tokens 20", "twenty words that follow these");
  if (!arguments.parse()) return 0;
  if (options.tokens < 1) throw base::ConfigError(109, "--tokens: at least 1 is expected");
  if (options.top_k < 0) throw base::ConfigError(109, "--top-k: at least 0 is expected; 0 is all");
  options.temperature = number("--temperature", temperature);
  options.seed = static_cast<uint64_t>(seed);
  const run::Earlier earlier = run::look_at(folder);
  if (!earlier.exists)
    throw base::ConfigError(162, folder + " is not a run folder: it has no config.toml; name one with --run");
  if (earlier.checkpoint.empty()) {
    throw base::DataError(
        324, folder + " has no complete checkpoint yet: let `lockstep train` finish, or stop it with Ctrl-C");
  }
  run::Session session(plan_of(folder));
  if (!session.plan.model->predicts_tokens)
    throw base::ConfigError(163, "this model does not predict tokens");
  const std::string checkpoint = read_newest(folder, [&](const std::string& one) {
    run::load_weights(*session.parameters, *session.plan.device, *session.ranks, one);
  });
  run::Generator generator(session);
  const data::Dataset& dataset = *session.plan.dataset;
  std::vector<int32_t> text = prompt.empty() ? dataset.start() : dataset.encode(prompt);
  const size_t given = prompt.empty() ? text.size() : 0;
  if (!json && given == 0) print("{}", dataset.decode(text));
  StopSignal signal;
  std::string shown = dataset.decode(std::span(text).subspan(given));
  generator.run(text, options, [&](int32_t token) {
    text.push_back(token);
    // Decoding from the start keeps spaces right; only what is new is printed.
    const std::string whole = dataset.decode(std::span<const int32_t>(text).subspan(given));
    if (!json) {
      print("{}", whole.substr(std::min(shown.size(), whole.size())));
      std::fflush(stdout);
    }
    shown = whole;
    return signal.value().load() == 0;
  });
  const std::optional<double> accepted = dataset.acceptance(text);
  if (json) {
    nlohmann::json out{{"run", folder}, {"checkpoint", checkpoint}, {"text", shown}, {"tokens", text}};
    if (accepted) out["accepted"] = *accepted;
    print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  print("\n");
  std::fflush(stdout);
  if (accepted) remark("the grammar accepts {:.0f} % of the complete sentences\n", *accepted * 100);
  return 0;
}

}  // namespace lockstep::cli

// lockstep bench generate: how fast prompts are read and tokens are drawn, alone and several at once.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/philox.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/tools/generate.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {
namespace {

struct Row {
  int64_t batch = 1;
  double read_per_s = 0, drawn_per_s = 0, weights_gb_s = 0;
};

run::Plan plan_of(const recipe::RecipeSource& source, int64_t longest) {
  recipe::Resolved resolved = recipe::read_recipe(source);
  recipe::Recipe& recipe = resolved.recipe;
  recipe.batch.global = 1;
  recipe.batch.slices = recipe.batch.strands = 1;
  recipe.batch.product_strands = recipe.batch.sequence_strands = 1;  // for training's sums alone
  recipe.parallel = {};
  recipe.data.pack = false;
  constexpr int64_t kShort = 16;
  recipe.data.seq_len = std::min({recipe.data.seq_len, kShort, longest});
  if (recipe.model.context.is_auto) recipe.model.context = longest;
  recipe.optim.name = "sgd";
  if (recipe.precision.compute == "fp8") recipe.precision.compute = "bf16";
  run::Plan plan = run::make_plan(std::move(resolved), {}, {.reads_data = false});
  if (plan.model->context < longest)
    throw base::ConfigError(109, fmt::format("--prompt-tokens and --tokens are {} tokens together, more than "
                                             "model.context = {}",
                                             longest, plan.model->context));
  return plan;
}

Row measure(run::Session& session, int64_t batch, int64_t prompt_tokens, int64_t tokens) {
  const int64_t vocab = std::min<int64_t>(session.plan.model->vocab, session.plan.dataset->vocab());
  std::vector<run::Request> requests(static_cast<size_t>(batch));
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int64_t t = 0; t < prompt_tokens; ++t) {
      const uint32_t random = base::philox(7, i, static_cast<uint64_t>(t)).x;
      requests[i].prompt.push_back(static_cast<int32_t>(random % static_cast<uint64_t>(vocab)));
    }
  }
  run::Generator generator(session, {.batch = batch, .longest = prompt_tokens + tokens});
  const auto go = [](size_t, const run::Drawn&) { return true; };
  generator.run(requests, {.tokens = 2}, go);  // memory is touched, products have chosen their ways
  const run::GenerateTimes before = generator.times();
  generator.run(requests, {.tokens = tokens}, go);
  const run::GenerateTimes& after = generator.times();
  // The first token of each text comes with its prompt.
  const double steps = static_cast<double>(tokens - 1), drawn_s = after.drawn_seconds - before.drawn_seconds;
  const auto weights =
      static_cast<double>(session.plan.model->param_count() * device::size_of(session.plan.model->compute));
  return {
      .batch = batch,
      .read_per_s = static_cast<double>(batch * prompt_tokens) / (after.read_seconds - before.read_seconds),
      .drawn_per_s = steps * static_cast<double>(batch) / drawn_s,
      .weights_gb_s = weights * steps / drawn_s / 1e9};
}

// "1,8".
std::vector<int64_t> counts_in(const std::string& text) {
  std::vector<int64_t> counts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<int64_t> count = base::parse_number(text.substr(begin, end - begin));
    if (!count || *count < 1 || *count > 4096) {
      throw base::ConfigError(
          109, fmt::format("--batch {}: expected numbers from 1 to 4096, such as 1,8", base::quoted(text)));
    }
    counts.push_back(*count);
    begin = end + 1;
  }
  return counts;
}

}  // namespace

int bench_generate(const std::vector<std::string>& words) {
  Arguments arguments("bench generate", "Time the reading of prompts and the drawing of tokens.", words);
  recipe::RecipeSource source;
  std::string batches = "1,8";
  int64_t prompt_tokens = 256, tokens = 33;
  bool json = false;
  arguments.recipe(source);
  arguments.option("--batch", batches, "texts at once, comma-separated");
  arguments.option("--prompt-tokens", prompt_tokens, "length of each prompt");
  arguments.option("--tokens", tokens, "tokens drawn per text");
  arguments.flag("--json", json, "print one JSON object per row");
  arguments.example("lockstep bench generate model.preset=124m model.context=1024", "GPT-2 124M");
  if (!arguments.parse()) return 0;
  if (prompt_tokens < 1 || tokens < 2)
    throw base::ConfigError(109, "--prompt-tokens must be at least 1, and --tokens at least 2");
  const std::vector<int64_t> counts = counts_in(batches);
  run::Session session(plan_of(source, prompt_tokens + tokens));
  terminal::Table table({"batch", "prompt tokens/s", "drawn tokens/s", "weights read"});
  for (const size_t column : {0, 1, 2, 3}) table.align_right(column);
  for (const int64_t batch : counts) {
    const Row row = measure(session, batch, prompt_tokens, tokens);
    if (json) {
      print("{}\n", nlohmann::ordered_json{{"batch", row.batch},
                                           {"prompt_tokens_per_s", row.read_per_s},
                                           {"drawn_tokens_per_s", row.drawn_per_s},
                                           {"weights_gb_s", row.weights_gb_s}}
                        .dump());
      std::fflush(stdout);
    }
    table.add({std::to_string(batch), fmt::format("{:.0f}", row.read_per_s),
               fmt::format("{:.1f}", row.drawn_per_s), fmt::format("{:.1f} GB/s", row.weights_gb_s)});
  }
  if (!json) print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  return 0;
}

}  // namespace lockstep::cli

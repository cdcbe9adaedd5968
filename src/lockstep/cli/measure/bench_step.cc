// lockstep bench step: how fast a recipe's step is here, and how far from the device's limit.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/model/families/family.h"
#include "lockstep/run/tools/bench_step.h"
#include "lockstep/terminal/laps_table.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {
namespace {

using run::BenchStep;

// Shapes around the recipe's own: no one of them may fall off a cliff.
struct Variation {
  std::string name;
  std::vector<std::string> keys;
};

std::vector<Variation> variations(const recipe::Recipe& recipe) {
  const int64_t batch = recipe.batch.global, seq = recipe.data.seq_len;
  const auto shape = [&](const char* name, int64_t samples, int64_t length) {
    return Variation{fmt::format("{}: {} x {}", name, samples, length),
                     {fmt::format("batch.global={}", samples), fmt::format("data.seq_len={}", length)}};
  };
  std::vector<Variation> all = {{"as given", {}},
                                shape("shorter", batch * 4, std::max<int64_t>(16, seq / 4)),
                                shape("longer", std::max<int64_t>(1, batch / 4), seq * 4),
                                shape("odd batch", std::max<int64_t>(1, batch - 1), seq),
                                shape("odd length", batch, std::max<int64_t>(1, seq - 8)),
                                shape("one sample", 1, seq)};
  all[2].keys.push_back(fmt::format("model.context={}", seq * 4));
  const auto sized = [&](const std::string& name, int64_t width, int64_t head) {
    all.push_back({name,
                   {"model.preset=", fmt::format("model.hidden={}", width),
                    fmt::format("model.heads={}", width / head), "model.kv_heads=auto", "model.head_dim=auto",
                    "model.ffn=auto", fmt::format("model.context={}", seq)}});
  };
  for (const int64_t width : {512, 1024, 1536, 2560}) sized(fmt::format("hidden {}", width), width, 64);
  for (const int64_t head : {32, 96, 128, 256}) {
    sized(fmt::format("heads of {}", head), 1024 / head * head, head);
  }
  all.push_back({"odd vocabulary: 50257", {"model.vocab=50257"}});
  const std::optional<model::Heads>& grouped = model::find_family(recipe.model.family).heads;
  for (const int64_t heads : {1, 2, 4, 16}) {
    if (!grouped || !grouped->grouped) break;
    all.push_back({fmt::format("{} key heads", heads), {fmt::format("model.kv_heads={}", heads)}});
  }
  for (size_t i = 1; i < all.size(); ++i) {  // slices that divide the recipe's batch need not divide this one
    all[i].keys.insert(all[i].keys.end(), {"batch.slices=auto", "batch.strands=auto"});
  }
  return all;
}

nlohmann::ordered_json to_json(const BenchStep& r, const std::string& name) {
  nlohmann::ordered_json json{{"device", r.device},
                              {"model", r.model},
                              {"parameters", r.parameters},
                              {"compute", r.compute},
                              {"samples", r.samples},
                              {"seq_len", r.seq_len},
                              {"slices", r.slices},
                              {"step_ms", r.median_ms},
                              {"step_ms_p10", r.low_ms},
                              {"step_ms_p90", r.high_ms},
                              {"tokens_per_s", r.tokens_per_s},
                              {"memory_gib", r.memory_gib},
                              {"first_step_s", r.first_step_s},
                              {"product_tflops", r.product_tflops},
                              {"copy_gb_s", r.copy_gb_s},
                              {"limit_ms", r.limit_ms},
                              {"graph", r.graph}};
  if (r.fp8_tflops > 0) json["fp8_tflops"] = r.fp8_tflops;
  if (r.mfu) json["mfu"] = *r.mfu;
  if (r.limit_ms > 0) json["share_of_limit"] = r.limit_ms / r.median_ms;
  if (!name.empty()) json["variation"] = name;
  return json;
}

std::string memory_text(const BenchStep& r) { return base::human_bytes(r.memory_gib * (1 << 30)); }

void print_one(const BenchStep& r) {
  print("{}, {} of {} parameters, {} x {} tokens in {}, {}\n", r.device, r.model,
        base::human_count(static_cast<double>(r.parameters)), r.samples, r.seq_len,
        r.slices == 1 ? "one slice" : fmt::format("{} slices", r.slices), r.compute);
  print("  step         {:.2f} ms (median; 10th to 90th percentile {:.2f} to {:.2f})\n", r.median_ms,
        r.low_ms, r.high_ms);
  print("  tokens/s     {}\n", base::human_count(r.tokens_per_s));
  if (r.mfu)
    print("  MFU          {:.1f} % (6 x parameters + 12 x layers x width x length FLOPs per token)\n",
          100 * *r.mfu);
  print("  memory       {}\n", memory_text(r));
  print("  first step   {:.2f} s after the process started\n", r.first_step_s);
  if (r.limit_ms <= 0) return;
  const std::string fp8 =
      r.fp8_tflops > 0 ? fmt::format(", fp8 ones at {}FLOP/s", base::human_count(r.fp8_tflops * 1e12)) : "";
  print(
      "  limit        {:.2f} ms: products at {}FLOP/s{}, the rest at copy bandwidth, {:.0f} GB/s, all "
      "measured now\n",
      r.limit_ms, base::human_count(r.product_tflops * 1e12), fp8, r.copy_gb_s);
  print("  of the limit {:.1f} %\n", 100 * r.limit_ms / r.median_ms);
}

int sweep(recipe::RecipeSource source, const run::BenchStepOptions& options, bool json) {
  terminal::Table table({"shape", "step", "tokens/s", "MFU", "memory", "of limit"});
  for (const size_t column : {1, 2, 3, 4, 5}) table.align_right(column);
  const std::vector<std::string> given = source.overrides;
  std::string refused;  // why, below the table
  for (const Variation& variation : variations(recipe::read_recipe(source).recipe)) {
    source.overrides = given;
    source.overrides.insert(source.overrides.end(), variation.keys.begin(), variation.keys.end());
    try {
      const BenchStep r = run::bench_step(recipe::read_recipe(source), options);
      if (json) print("{}\n", to_json(r, variation.name).dump());
      table.add({variation.name, fmt::format("{:.2f} ms", r.median_ms), base::human_count(r.tokens_per_s),
                 r.mfu ? fmt::format("{:.1f} %", 100 * *r.mfu) : "-", memory_text(r),
                 r.limit_ms > 0 ? fmt::format("{:.0f} %", 100 * r.limit_ms / r.median_ms) : "-"});
    } catch (const base::Error& error) {
      if (json)
        print("{}\n", nlohmann::ordered_json{{"variation", variation.name}, {"error", error.what()}}.dump());
      table.add({variation.name, "-", "-", "-", "-", base::code_name(error.number())});
      refused += fmt::format("{}: {}\n", variation.name, error.what());
    }
    std::fflush(stdout);
  }
  if (!json)
    print("{}{}{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)), refused.empty() ? "" : "\n",
          refused);
  return 0;
}

}  // namespace

int bench_step(const std::vector<std::string>& words) {
  Arguments arguments("bench step", "Time a recipe's training step and compare it with the device's limit.",
                      words);
  recipe::RecipeSource source;
  run::BenchStepOptions options;
  base::Laps laps("load the program and its libraries");
  bool json = false, varied = false, timing = false;
  arguments.recipe(source);
  arguments.option("--steps", options.steps, "timed steps, after five warm-up steps");
  arguments.flag("--sweep", varied, "also vary sequence length, batch size, width and key heads");
  arguments.flag("--timing", timing, "print a breakdown of the time until the end of the first step");
  arguments.flag("--json", json, "print one JSON object per measurement");
  arguments.example("lockstep bench step model.preset=124m data.seq_len=1024 batch.global=32 batch.slices=1",
                    "GPT-2 124M");
  arguments.example("lockstep bench step first.toml --sweep --json", "many shapes, for a script");
  if (!arguments.parse()) return 0;
  run::check(options);
  if (varied) return sweep(std::move(source), options, json);
  options.laps = &laps;
  const BenchStep result = run::bench_step(recipe::read_recipe(source), options);
  if (json) {
    nlohmann::ordered_json object = to_json(result, "");
    for (const base::Laps::Lap& lap : laps.all()) object["timing_s"][lap.what] = lap.seconds;
    for (const base::Laps::Lap& lap : laps.meanwhile()) object["meanwhile_s"][lap.what] = lap.seconds;
    print("{}\n", object.dump());
  } else {
    print_one(result);
    if (timing) print("{}", terminal::laps_table(laps));
  }
  return 0;
}

}  // namespace lockstep::cli

// Random small models trained in random layouts, against one rank: losses, every gradient, memory. Ranks are
// threads here. A failing case prints its seed; this runs only that one, or goes on for longer:
//
//     LOCKSTEP_SEED=417 run_test --gtest_filter=RandomLayouts.MatchOneRank
//     LOCKSTEP_SECONDS=600 run_test --gtest_filter=RandomLayouts.*
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/random_testing.h"
#include "lockstep/run/session/choose_layout.h"

namespace lockstep::run {
namespace {

// --- what is drawn -----------------------------------------------------------------------------------

int divisor_of(Draw& draw, int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  return all[draw.below(static_cast<uint32_t>(all.size()))];
}

// Layers for each piece of a pipeline by hand. The embedding goes with the first and the head with the last,
// so that these two may have none.
std::string placed(Draw& draw, int layers, int pieces) {
  std::vector<int> counts(static_cast<size_t>(pieces), 1);
  counts.front() = counts.back() = 0;
  for (int left = layers - (pieces - 2); left > 0; --left)
    ++counts[draw.below(static_cast<uint32_t>(pieces))];
  return fmt::format("{}", fmt::join(counts, ","));
}

// Ranks of each axis; the product is at most `most`.
struct Axes {
  int data = 1, tensor = 1, context = 1, pipeline = 1;
  int world() const { return data * tensor * context * pipeline; }
};
Axes draw_axes(Draw& draw, int most) {
  Axes axes;
  do {
    axes.data = from(draw, 1, 5);
    axes.tensor = draw.below(2) == 0 ? 1 : from(draw, 1, 4);
    axes.context = draw.below(2) == 0 ? 1 : from(draw, 1, 4);
    axes.pipeline = draw.below(2) == 0 ? 1 : from(draw, 1, 4);
  } while (axes.world() > most || axes.world() == 1);
  return axes;
}

// What is frozen, and which parameters have a rate or a rule of their own.
void draw_groups(Draw& draw, bool llama, Words& recipe) {
  const std::vector<std::string> patterns =
      llama ? std::vector<std::string>{"*embed_tokens*", "*.layers.0.*", "*self_attn*", "*norm*", "*.mlp.*"}
            : std::vector<std::string>{"*wte*", "*wpe*", "*.h.0.*", "*.attn.*", "*.bias", "*ln_*", "*.mlp.*"};
  const uint32_t kind = draw.below(8);
  if (kind < 2) recipe.push_back(fmt::format("tune.freeze={},{}", draw.pick(patterns), draw.pick(patterns)));
  if (kind == 2) recipe.push_back("tune.train=" + draw.pick(patterns));
  if (draw.below(4) == 0)
    recipe.push_back(fmt::format("optim.groups={} kind=sgd lr_scale=0.5,{} weight_decay=0.3",
                                 llama ? "*.mlp.*" : "*.attn.*", draw.pick(patterns)));
  if (draw.below(5) == 0) recipe.push_back("optim.name=muon");
}

// A layout that the recipe's check must allow: sizes are made to be divisible.
Drawn draw_case(uint32_t seed) {
  Draw draw(seed);
  Drawn drawn;
  const Axes axes = draw_axes(draw, 8);
  drawn.world = axes.world();
  drawn.cuts_sums = axes.tensor > 1 || axes.context > 1;
  drawn.rounds = draw.below(4) == 0;
  const auto set = [&](const char* key, const auto& value) {
    drawn.recipe.push_back(fmt::format("{}={}", key, value));
  };
  const auto lay = [&](const char* key, const auto& value) {
    drawn.layout.push_back(fmt::format("{}={}", key, value));
  };
  const bool llama = draw.below(2) == 0, heads_form = draw.below(2) == 0;
  // The model.
  const int kv_heads = axes.tensor * (heads_form ? axes.context : 1) * from(draw, 1, 2);
  const int heads = kv_heads * (llama ? from(draw, 1, 3) : 1);
  const int layers = from(draw, 1, 6);
  set("model.family", llama ? "llama" : "gpt2");
  set("model.layers", layers);
  set("model.heads", heads);
  set("model.kv_heads", kv_heads);
  int width = llama ? 2 * from(draw, 1, 4) : from(draw, 1, 8);  // of a head
  if (heads * width < 8) width = 8;                             // norms of fewer are all rounding
  set("model.hidden", heads * width);
  if (llama && draw.below(3) == 0) set("model.head_dim", width = 2 * from(draw, 1, 6));
  if (llama && draw.below(3) == 0) {
    set("model.rope_scaling", from(draw, 2, 4));
    set("model.rope_type", width > 2 ? draw.pick({"llama3", "linear", "yarn", "dynamic"}) : "linear");
    set("model.rope_original_context", from(draw, 4, 16));
  }
  set("model.ffn", axes.tensor * from(draw, 1, 24));
  set("model.vocab", from(draw, 160, 250));
  if (draw.below(2) == 0) set("model.activation", draw.pick({"gelu", "quick_gelu", "silu", "relu2"}));
  if (llama) set("model.attention_bias", draw.below(3) == 0);
  if (llama) set("model.mlp_bias", draw.below(3) == 0);
  set("model.tied", draw.below(2) == 0);
  set("model.dropout", !llama && draw.below(3) == 0 ? "0.1" : "0");
  set("precision.compute", drawn.rounds ? "bf16" : "fp32");
  const int samples = from(draw, 1, 3);
  int unit = axes.context == 1 ? 1 : heads_form ? axes.context : 2 * axes.context;
  const bool sequence = axes.tensor > 1 && draw.below(2) == 0;
  if (sequence) unit *= axes.tensor;
  set("data.seq_len", unit * from(draw, unit == 1 ? 2 : 1, std::max(1, 23 / unit)));
  if (draw.below(3) == 0) set("memory.logits_chunk", from(draw, 1, 40));
  // The batch: enough strands for the data ranks, enough slices for the stages.
  const int schedule = static_cast<int>(draw.below(4));
  const int strands = axes.data * from(draw, 1, 2) + (draw.below(3) == 0 ? from(draw, 0, 2) : 0);
  int per_strand = from(draw, 1, 2);
  const bool sparse = schedule == 0 && draw.below(2) == 0;  // gpipe may have fewer slices than stages
  if (axes.pipeline > 1 && !sparse) per_strand = std::max(per_strand, axes.pipeline);
  set("batch.strands", strands);
  set("batch.slices", strands * per_strand);
  set("batch.global", strands * per_strand * samples);
  set("optim.name", draw.below(6) == 0 ? "lion" : "adamw");
  // The layout.
  const int zero = axes.data == 1 ? 0 : static_cast<int>(draw.below(4));
  lay("parallel.zero", zero);
  if (zero > 0 && draw.below(2) == 0) lay("parallel.shard", divisor_of(draw, axes.data));
  if (axes.tensor > 1) lay("parallel.tensor", axes.tensor);
  if (sequence) lay("parallel.sequence", true);
  if (axes.context > 1) lay("parallel.context", axes.context);
  if (axes.context > 1) lay("parallel.context_form", heads_form ? "heads" : "ring");
  if (axes.pipeline > 1) {
    const char* names[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
    int chunks = schedule == 2 ? from(draw, 2, 3) : 1;
    if (chunks * axes.pipeline > layers + 2) chunks = (layers + 2) / axes.pipeline;
    const bool alone = schedule == 2 && chunks < 2;
    if (axes.pipeline > layers + 2) return draw_case(seed + 1000003);
    lay("parallel.pipeline", axes.pipeline);
    lay("parallel.schedule", alone ? "1f1b" : names[schedule]);
    if (chunks > 1) lay("parallel.chunks", chunks);
    const int pieces = axes.pipeline * std::max(1, chunks);
    if (draw.below(3) == 0) lay("parallel.stages", placed(draw, layers, pieces));
  }
  lay("memory.recompute", draw.pick({"none", "none", "cheap", "full", "every-2", "attention,up", "down"}));
  if (draw.below(2) == 0) lay("parallel.bucket_mib", draw.pick({"0", "0.01"}));
  if (draw.below(4) == 0) drawn.engine = "gloo";
  if (draw.below(3) == 0) drawn.per_node = divisor_of(draw, drawn.world);
  draw_groups(draw, llama, drawn.recipe);
  return drawn;
}

// --- what a run leaves -------------------------------------------------------------------------------

// The first moments after step 1 are a multiple of the gradients. Ranks fill in what they hold.
struct Gathered {
  std::mutex mutex;
  struct Tensor {
    std::vector<float> values;
    std::vector<uint8_t> filled;
  };
  std::map<std::string, Tensor> tensors;

  void add(const Parameters& parameters) {
    const std::lock_guard lock(mutex);
    for (const Parameters::Saved& one : parameters.saved()) {
      if (!one.piece.tensor.name.ends_with(".m")) continue;
      Tensor& whole = tensors[one.piece.tensor.name];
      whole.values.resize(static_cast<size_t>(one.piece.tensor.shape.numel()));
      whole.filled.resize(whole.values.size());
      std::vector<float> held(static_cast<size_t>(one.piece.count));
      parameters.read(one.values, held.data());
      for (const checkpoint::Run& run : checkpoint::runs_of(one.piece)) fill(whole, held, run);
    }
  }

 private:
  // Ranks that hold the same must hold the same bits.
  static void fill(Tensor& whole, const std::vector<float>& held, const checkpoint::Run& run) {
    for (int64_t k = 0; k < run.count; ++k) {
      const auto to = static_cast<size_t>(run.at + k);
      const float value = held[static_cast<size_t>(run.from + k)];
      if (whole.filled[to] != 0 && std::memcmp(&whole.values[to], &value, 4) != 0) whole.filled[to] = 2;
      if (whole.filled[to] == 0) whole.filled[to] = 1;
      whole.values[to] = value;
    }
  }
};

struct Result {
  std::string hash;
  std::vector<double> losses, norms;
  double eval_loss = 0;
  int64_t peak_bytes = 0, planned_bytes = 0;
  int64_t fullest_bytes = 0;  // of all ranks, as parallel.auto sees it
};

struct Watcher : Observer {
  Result* result;
  void stepped(const StepReport& report) override {
    result->losses.push_back(report.loss);
    result->norms.push_back(report.grad_norm);
  }
};

Result train_rank(const Words& recipe, const Words& layout, comm::World& world, Gathered& gradients) {
  Ranks ranks(world);
  Plan plan = make_plan(recipe_of(recipe, layout), {}, for_this(ranks));
  if (!ranks.alone()) check_ranks(plan);
  Result result;
  result.planned_bytes = plan.memory.peak_bytes();
  if (ranks.rank() == 0) result.fullest_bytes = fullest_rank_bytes(plan);
  Session session(std::move(plan), &ranks);
  Watcher watcher;
  watcher.result = &result;
  TrainOptions options;
  options.save_every = 1;
  options.save = [&](int64_t step) {
    if (step == 1) gradients.add(*session.parameters);
  };
  const Summary summary = train(session, options, watcher);
  result.hash = summary.params_hash;
  result.eval_loss = summary.eval_loss.value_or(0);
  result.peak_bytes = session.plan.device->peak_allocated_bytes();
  return result;
}

// --- how they are compared ---------------------------------------------------------------------------

struct Tolerance {
  double loss, gradient;
};

double apart(double a, double b) { return a == b ? 0 : std::abs(a - b) / std::max(std::abs(b), 1e-30); }

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max<double>(largest, std::abs(value));
  return largest;
}

// The largest difference relative to the largest value of its tensor; what is wrong otherwise goes to `why`.
// Gradients that are as good as zero are all rounding.
double gradients_apart(const Gathered& one, const Gathered& many, std::string& why) {
  double most = 0, nothing = 0;
  for (const auto& [name, expected] : one.tensors)
    nothing = std::max(nothing, 1e-6 * largest_of(expected.values));
  for (const auto& [name, expected] : one.tensors) {
    const auto found = many.tensors.find(name);
    if (found == many.tensors.end()) {
      why += name + " is on no rank; ";
      continue;
    }
    const double largest = largest_of(expected.values);
    double difference = 0;
    for (size_t k = 0; k < expected.values.size(); ++k) {
      if (found->second.filled[k] != 1) {
        why += fmt::format("{} element {} {}; ", name, k,
                           found->second.filled[k] == 0 ? "is on no rank" : "differs between ranks");
        break;
      }
      const double d = std::abs(static_cast<double>(found->second.values[k]) - expected.values[k]);
      difference = std::isfinite(d) ? std::max(difference, d) : 1e30;
    }
    const double relative = difference == 0 ? 0 : difference / std::max(largest, nothing);
    if (relative <= most) continue;
    most = relative;
    why = fmt::format("{} by {:.1e} of {:.1e}; ", name, relative, largest);
  }
  return most;
}

void compare(const Drawn& drawn, const Result& one, const Gathered& gradients_of_one, const Result& rank,
             const Gathered& gradients) {
  // Sums of few terms that cancel leave more of the rounding than the loss shows.
  const Tolerance tolerance = drawn.rounds ? Tolerance{5e-4, 5e-2} : Tolerance{1e-5, 2e-5};
  std::string why;
  const double most = gradients_apart(gradients_of_one, gradients, why);
  if (!drawn.cuts_sums) {
    EXPECT_EQ(rank.losses, one.losses);
    EXPECT_EQ(rank.norms, one.norms);
    EXPECT_EQ(rank.hash, one.hash);
    EXPECT_EQ(rank.eval_loss, one.eval_loss);
    EXPECT_EQ(most, 0) << why;
  } else {
    ASSERT_EQ(rank.losses.size(), one.losses.size());
    EXPECT_LT(apart(rank.losses[0], one.losses[0]), tolerance.loss);
    EXPECT_LT(apart(rank.norms[0], one.norms[0]), tolerance.gradient);
    EXPECT_LT(most, tolerance.gradient) << why;
  }
  // Frozen weights that are kept in 16 bits are drawn, and hashed, in fp32 a few at a time, outside of steps.
  const bool widens = drawn.words().find("tune.") != std::string::npos;
  EXPECT_NEAR(
      static_cast<double>(rank.peak_bytes), static_cast<double>(rank.planned_bytes),
      0.02 * static_cast<double>(rank.planned_bytes) + (widens ? 32768 : 1024));  // some have a few KiB
}

// parallel.auto asks only some ranks what all of them need.
void compare_memory(const std::vector<Result>& ranks) {
  int64_t fullest = 0;
  for (const Result& rank : ranks) fullest = std::max(fullest, rank.planned_bytes);
  EXPECT_LE(ranks[0].fullest_bytes, fullest);
  EXPECT_GE(static_cast<double>(ranks[0].fullest_bytes), 0.98 * static_cast<double>(fullest) - 8192);
}

void try_case(uint32_t seed) {
  const Drawn drawn = draw_case(seed);
  SCOPED_TRACE(fmt::format("LOCKSTEP_SEED={} repeats this: {}", seed, drawn.words()));
  try {
    Gathered gradients_of_one, gradients;
    comm::World alone;
    const Result one = train_rank(drawn.recipe, {}, alone, gradients_of_one);
    ASSERT_FALSE(gradients_of_one.tensors.empty());
    std::vector<Result> many(static_cast<size_t>(drawn.world));
    on_ranks(
        drawn.world, drawn.engine,
        [&](comm::World& world) {
          many[static_cast<size_t>(world.rank())] = train_rank(drawn.recipe, drawn.layout, world, gradients);
        },
        drawn.per_node);
    for (const Result& rank : many) {
      EXPECT_EQ(rank.hash, many[0].hash);
      EXPECT_EQ(rank.losses, many[0].losses);
      compare(drawn, one, gradients_of_one, rank, gradients);
      if (testing::Test::HasFailure()) break;
    }
    compare_memory(many);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(RandomLayouts, MatchOneRank) {
  LS_NEEDS_HOST_MEMORY();
  if (const char* seed = std::getenv("LOCKSTEP_SEED"))
    return try_case(static_cast<uint32_t>(std::atoi(seed)));
  const auto ends = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_requested(15));
  const uint32_t first = first_seed();
  uint32_t seed = first;
  for (; std::chrono::steady_clock::now() < ends; ++seed) try_case(seed);
  std::printf("seeds %u to %u\n", first, seed - 1);
}

}  // namespace
}  // namespace lockstep::run

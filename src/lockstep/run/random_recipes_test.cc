// Recipes of any sizes and any layout, most of them impossible: refused alike on all ranks, with ways out
// that lead out, or sound on all.
#include <gtest/gtest.h>

#include <chrono>
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/run/random_testing.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/rank_layout.h"

namespace lockstep::run {
namespace {

// Any sizes and any layout, most of them impossible.
Drawn draw_wild(uint32_t seed) {
  Draw draw(seed);
  Drawn drawn;
  const auto set = [&](const char* key, int least, int most) {
    drawn.recipe.push_back(fmt::format("{}={}", key, from(draw, least, most)));
  };
  const auto maybe = [&](uint32_t one_in, const char* key, int least, int most) {
    if (draw.below(one_in) == 0) set(key, least, most);
  };
  const auto pick = [&](const char* key, const std::vector<std::string>& options) {
    drawn.recipe.push_back(std::string(key) + "=" + draw.pick(options));
  };
  pick("model.family", {"gpt2", "gpt2", "llama", "llama", "mlp"});
  set("model.layers", 1, 5);
  pick("model.heads", {"1", "2", "3", "4", "6", "12"});
  pick("model.hidden", {"24", "48", "96"});
  maybe(6, "model.kv_heads", 1, 4);
  maybe(6, "model.ffn", 1, 40);
  maybe(6, "model.vocab", 140, 200);
  pick("model.activation", {"auto", "gelu", "gelu_fast", "relu", "silu"});
  pick("model.attention_bias", {"false", "true"});
  pick("model.mlp_bias", {"false", "true"});
  pick("data.seq_len", {"1", "8", "12", "16", "24", "27"});
  pick("batch.global", {"6", "8", "12", "24", "48"});
  pick("batch.slices", {"4", "6", "8", "12", "24", "auto", "auto"});
  pick("batch.strands", {"auto", "auto", "auto", "1", "2", "3", "4"});
  pick("parallel.zero", {"0", "0", "1", "2", "3"});
  maybe(6, "parallel.shard", 1, 4);
  maybe(8, "parallel.data", 1, 4);
  int together = 1;
  for (const char* axis : {"tensor", "context", "pipeline"}) {
    const int size = draw.below(2) == 0 ? 1 : from(draw, 1, 4);
    drawn.recipe.push_back(fmt::format("parallel.{}={}", axis, size));
    together *= size;
  }
  pick("parallel.sequence", {"true", "false"});
  pick("parallel.context_form", {"ring", "heads"});
  pick("parallel.schedule", {"gpipe", "1f1b", "interleaved", "zero-bubble"});
  maybe(4, "parallel.chunks", 1, 4);
  if (draw.below(8) == 0) pick("parallel.stages", {"1,2", "2,2", "0,3,0", "0,0,4", "1,1,1,1", "7"});
  pick("memory.recompute", {"none", "cheap", "full", "every-2", "every-9", "attention", "up,down"});
  pick("run.exact", {"true", "true", "true", "false"});
  pick("precision.compute", {"fp32", "bf16", "fp16", "fp8"});
  drawn.world = draw.below(8) == 0 ? from(draw, 1, 12) : together * from(draw, 1, 3);
  return drawn;
}

// Why the recipe's check refuses a rank's plan; empty when it does not.
std::string refusal(const Drawn& drawn, int rank) {
  try {
    const Plan plan = make_plan(recipe_of(drawn.recipe, {}), {},
                                {.must_fit = false, .seat = {.rank = rank, .world = drawn.world}});
    if (rank == 0) check_ranks(plan);
    return "";
  } catch (const base::ConfigError& error) {
    return error.what();
  }
}

// Each way out that a refusal names: "set batch.strands=6", "set parallel.tensor=1 and parallel.context=2",
// "--nproc 8", "parallel.tensor = 3 ...; choose one of 1, 2".
std::vector<std::string> ways_out(const std::string& why) {
  std::vector<std::string> ways;
  const std::regex set(R"(\b[a-z]+\.[a-z_]+=[a-z0-9]+( and [a-z]+\.[a-z_]+=[a-z0-9]+)*|--nproc [0-9]+)"),
      list(R"(^([a-z]+\.[a-z_]+) = .* choose one of ([0-9]+)((, [0-9]+)*))"), number("[0-9]+");
  for (std::sregex_iterator at(why.begin(), why.end(), set), end; at != end; ++at) ways.push_back(at->str());
  std::smatch found;
  if (!std::regex_search(why, found, list)) return ways;
  const std::string sizes = found.str(2) + found.str(3);
  for (std::sregex_iterator at(sizes.begin(), sizes.end(), number), end; at != end; ++at)
    ways.push_back(found.str(1) + "=" + at->str());
  return ways;
}

std::string code_of(const std::string& why) { return why.substr(std::min(why.rfind('['), why.size())); }

// A way out may lead to the next refusal, but not to the same one, nor to one that says that the ranks do not
// suffice for it: they did before. (Of stages by hand, LS0159, the number may
// be wrong and what is in them too.)
void take_ways_out(const Drawn& drawn, const std::string& why) {
  if (code_of(why) == "[LS0159]") return;
  for (const std::string& way : ways_out(why)) {
    Drawn changed = drawn;
    if (way.starts_with("--nproc ")) {
      changed.world = std::atoi(way.c_str() + 8);
    } else {
      for (size_t at = 0; at < way.size();) {
        const size_t end = std::min(way.find(" and ", at), way.size());
        changed.recipe.push_back(way.substr(at, end - at));
        at = end + 5;
      }
    }
    const std::string next = refusal(changed, 0);
    if (next.empty()) continue;
    EXPECT_NE(code_of(next), code_of(why)) << why << "\n  " << way << ": " << next;
    if (code_of(why) >= "[LS0158]" && code_of(why) <= "[LS0165]") {
      EXPECT_NE(code_of(next), "[LS0157]") << why << "\n  " << way << ": " << next;
    }
  }
}

TEST(RandomRecipes, AreRefusedOnAllRanksOrSoundOnAll) {
  LS_NEEDS_HOST_MEMORY();
  const auto ends = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_requested(5));
  int refused = 0, sound = 0;
  const auto enough = [&] { return std::chrono::steady_clock::now() >= ends && refused > 0 && sound > 0; };
  for (uint32_t seed = first_seed(); !enough() && refused + sound < 5000; ++seed) {
    const Drawn drawn = draw_wild(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, drawn.words()));
    try {
      const std::string why = refusal(drawn, 0);
      ++(why.empty() ? sound : refused);
      for (int rank = 1; rank < drawn.world; ++rank) ASSERT_EQ(refusal(drawn, rank), why) << "rank " << rank;
      take_ways_out(drawn, why);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(sound, 0);
  std::printf("%d refused, %d sound\n", refused, sound);
}

}  // namespace
}  // namespace lockstep::run

#include "lockstep/cli/explain_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/program/check.h"

namespace lockstep::cli {

namespace {

constexpr int64_t kMostRanks = 1 << 20;

}  // namespace

void add_plan_words(Arguments& arguments, PlanWords& words) {
  arguments.recipe(words.source);
  arguments.option("--nproc,--nproc-per-node", words.ranks,
                   "as it would be on so many ranks; they need not exist");
  arguments.option("--rank", words.rank, "which of them");
}

run::Plan plan_for(const PlanWords& words) {
  if (words.ranks < 1 || words.ranks > kMostRanks) {
    throw base::ConfigError(
        109, fmt::format("--nproc {}: expected a whole number from 1 to {}", words.ranks, kMostRanks));
  }
  if (words.rank < 0 || words.rank >= words.ranks) {
    throw base::ConfigError(109, fmt::format("--rank {}: --nproc {} has the ranks 0 to {}", words.rank,
                                             words.ranks, words.ranks - 1));
  }
  base::Resolved resolved = base::read_recipe(words.source);
  run::PlanOptions options{.must_fit = false};
  // Any rank's program can be made on this machine's first device.
  options.seat.rank = static_cast<int>(words.rank), options.seat.world = static_cast<int>(words.ranks);
  options.shares_memory = resolved.recipe.parallel.engine != "gloo";
  run::Plan plan = run::make_plan(std::move(resolved), {}, options);
  program::order(plan.program);
  return plan;
}

std::string rank_line(const run::Plan& plan) {
  const program::DataRanks& ranks = plan.program.ranks;
  if (plan.seat.world == 1) return "";
  std::string text = fmt::format("rank {} of {}", plan.seat.rank, plan.seat.world);
  const model::Parts& parts = plan.model->parts;
  const program::Stages& stages = plan.program.stages;
  if (parts.tensor > 1) text += fmt::format(", tensor rank {} of {}", parts.tensor_rank, parts.tensor);
  if (parts.context > 1) text += fmt::format(", context rank {} of {}", parts.context_rank, parts.context);
  if (stages.count > 1) text += fmt::format(", stage {} of {}", stages.self, stages.count);
  if (ranks.sharded()) text += fmt::format(", parallel.zero={}", ranks.zero);
  if (ranks.sharded() && ranks.replicas > 1) {
    text += fmt::format(": rank {} of {} in copy {} of {}", ranks.shard_rank, ranks.shard, ranks.replica,
                        ranks.replicas);
  }
  const auto& own = plan.program.own_slices;
  return text + fmt::format("; {} {} of {}\n", own.size() == 1 ? "slice" : "slices", fmt::join(own, ", "),
                            plan.program.slices);
}

}  // namespace lockstep::cli

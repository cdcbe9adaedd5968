#include "lockstep/cli/explain/explain_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/print.h"
#include "lockstep/comm/engine.h"
#include "lockstep/program/check.h"
#include "lockstep/run/session/choose_layout.h"

namespace lockstep::cli {

namespace {

constexpr int64_t kMostRanks = 1 << 20;

}  // namespace

void add_plan_words(Arguments& arguments, PlanWords& words) {
  arguments.recipe(words.source);
  arguments.option("--nproc,--nproc-per-node", words.ranks,
                   "plan for this many ranks per node; they need not exist");
  arguments.option("--nnodes", words.nodes, "plan for this many nodes, with --nproc ranks each");
  arguments.option("--rank", words.rank, "which rank");
}

run::Plan plan_for(const PlanWords& words) {
  for (const auto& [flag, count] : {std::pair("--nproc", words.ranks), {"--nnodes", words.nodes}}) {
    if (count >= 1 && count <= kMostRanks) continue;
    throw base::ConfigError(109,
                            fmt::format("{} {}: expected an integer from 1 to {}", flag, count, kMostRanks));
  }
  const int64_t world = words.ranks * words.nodes;
  if (world > kMostRanks) {
    throw base::ConfigError(109, fmt::format("--nnodes {} x --nproc {} is more than {} ranks", words.nodes,
                                             words.ranks, kMostRanks));
  }
  if (words.rank < 0 || words.rank >= world) {
    throw base::ConfigError(
        109, fmt::format("--rank {}: {} has ranks 0 to {}", words.rank,
                         words.nodes == 1 ? fmt::format("--nproc {}", words.ranks)
                                          : fmt::format("--nnodes {} x --nproc {}", words.nodes, words.ranks),
                         world - 1));
  }
  recipe::Resolved resolved = recipe::read_recipe(words.source);
  run::PlanOptions options{.must_fit = false, .reads_data = false, .exists = false};
  // Any rank's program can be made on this machine's first device.
  options.seat.rank = static_cast<int>(words.rank), options.seat.world = static_cast<int>(world);
  options.node_shares_memory = comm::would_share_memory(resolved.recipe.parallel.engine);
  options.shares_memory = options.node_shares_memory && words.nodes == 1;
  options.per_node = words.nodes == 1 ? 0 : static_cast<int>(words.ranks);
  if (resolved.recipe.parallel.automatic) {
    run::PlanOptions look = options;
    look.seat.local_world = static_cast<int>(words.ranks);
    remark("{}\n", run::choose_layout(resolved, look));
  }
  run::Plan plan = run::make_plan(std::move(resolved), {}, options);
  program::order(plan.program);
  return plan;
}

std::string traffic_text(const run::Plan& plan) {
  const plan::Traffic sent = run::traffic_of(plan);
  const auto text = [](int64_t bytes) { return base::human_bytes(static_cast<double>(bytes)); };
  if (plan.per_node == 0) return fmt::format("sends {} per step", text(sent.all()));
  return fmt::format("sends {} per step within its node and {} to other nodes", text(sent.inside),
                     text(sent.across));
}

namespace {

// "0 to 511", "0, 1, 4 to 7": ascending numbers without the tedium.
std::string in_runs(const std::vector<int64_t>& numbers) {
  std::vector<std::string> runs;
  for (size_t first = 0, end = 0; first < numbers.size(); first = end) {
    for (end = first + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    const bool few = end - first < 3;
    for (size_t k = first; few && k < end; ++k) runs.push_back(std::to_string(numbers[k]));
    if (!few) runs.push_back(fmt::format("{} to {}", numbers[first], numbers[end - 1]));
  }
  return base::join(runs, ", ");
}

}  // namespace

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
    text += fmt::format(": rank {} of {} in replica {} of {}", ranks.shard_rank, ranks.shard, ranks.replica,
                        ranks.replicas);
  }
  const auto& own = plan.program.own_slices;
  return text + fmt::format("; {} {} of {}\n", own.size() == 1 ? "slice" : "slices", in_runs(own),
                            plan.program.slices);
}

}  // namespace lockstep::cli

#include "lockstep/run/session/rank_layout.h"

#include <fmt/format.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/mesh.h"

namespace lockstep::run {

using base::ConfigError;
using comm::Axis;
using device::DType;

namespace {

constexpr int64_t kMostRanks = 1 << 20;

// "tensor 4 x pipeline 2": what multiplies up to ranks that belong together.
std::string product_text(const recipe::Recipe::Parallel& p) {
  std::string text;
  for (const auto& [name, size] :
       {std::pair("tensor", p.tensor), {"context", p.context}, {"pipeline", p.pipeline}}) {
    if (size > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, size);
  }
  return text;
}

// One way out: as much of each as the ranks allow, tensor first.
std::string smaller(const recipe::Recipe::Parallel& p, int64_t world) {
  std::vector<std::string> changes;
  for (const auto& [name, size] :
       {std::pair("tensor", p.tensor), {"context", p.context}, {"pipeline", p.pipeline}}) {
    const int64_t fits = std::gcd(size, world);
    world /= fits;
    if (fits != size) changes.push_back(fmt::format("parallel.{}={}", name, fits));
  }
  return "set " + base::join(changes, " and ");
}

int data_width(const recipe::Recipe::Parallel& p, int world) {
  const int64_t together = p.tensor * p.context * p.pipeline;
  if (world % together != 0) {
    const int64_t enough = base::round_up(world, together);
    const std::string more = enough <= kMostRanks ? fmt::format("add --nproc {} or ", enough) : "";
    throw ConfigError(157, fmt::format("{} needs {} ranks or a multiple, but {} started: {}{}",
                                       product_text(p), together, world, more, smaller(p, world)));
  }
  const auto width = static_cast<int>(world / together);
  if (!p.data.is_auto && p.data.value != width) {
    const std::string others = product_text(p);
    const int64_t needed = p.data.value * together;
    throw ConfigError(
        152,
        others.empty()
            ? fmt::format(
                  "parallel.data = {} needs {} ranks, but {} started: add --nproc {}, or leave it \"auto\"",
                  p.data.value, needed, world, needed)
            : fmt::format("data {} x {} needs {} ranks, but {} started: add --nproc {}, or leave "
                          "parallel.data \"auto\"",
                          p.data.value, others, needed, world, needed));
  }
  return width;
}

program::DataRanks data_ranks(const recipe::Recipe& recipe, int width) {
  const auto& p = recipe.parallel;
  program::DataRanks ranks;
  ranks.zero = zero_stage(p.zero);
  if (ranks.zero == 0 && !p.shard.is_auto && p.shard.value > 1) {
    const int64_t fits = std::gcd<int64_t>(p.shard.value, width);
    const std::string groups =
        fits == 1 ? ""
                  : fmt::format("set parallel.zero=3{}, or ",
                                fits == p.shard.value ? "" : fmt::format(" and parallel.shard={}", fits));
    throw ConfigError(153,
                      fmt::format("parallel.shard = {} is the number of ranks that state is sharded over, "
                                  "but parallel.zero = 0 shards nothing: {}leave parallel.shard \"auto\"",
                                  p.shard.value, groups));
  }
  ranks.shard = ranks.zero == 0 ? 1 : p.shard.is_auto ? width : static_cast<int>(p.shard.value);
  if (width % ranks.shard != 0) {
    throw ConfigError(
        153, fmt::format(
                 "parallel.shard = {} does not divide the {} data ranks that were started; choose one of {}",
                 ranks.shard, width, base::divisors_near(width, ranks.shard)));
  }
  if (p.wire != "fp32" && recipe.run.exact) {
    throw ConfigError(155,
                      "parallel.wire = \"bf16\" rounds gradients in transit, which needs run.exact = false");
  }
  ranks.replicas = width / ranks.shard;
  ranks.exact = recipe.run.exact || width == 1;
  ranks.wire = p.wire == "bf16" ? DType::bf16 : DType::f32;
  ranks.bucket_bytes = static_cast<int64_t>(p.bucket_mib * (1 << 20));
  return ranks;
}

}  // namespace

int zero_stage(const std::string& word) {
  return word == "1" || word == "optimizer"  ? 1
         : word == "2" || word == "gradient" ? 2
         : word == "3" || word == "full"     ? 3
                                             : 0;
}

namespace {

// How many of the data ranks of one stage stand on each node, where that is the same on all of them: whole
// sets of tensor and context ranks, or parts of one. Otherwise 0.
int data_per_node(const recipe::Recipe::Parallel& p, int width, int per_node) {
  const auto together = static_cast<int>(p.tensor * p.context);
  if (per_node == 0) return 0;
  if (per_node % together != 0) return together % per_node == 0 ? 1 : 0;
  const int here = per_node / together;
  if (here >= width) return here % width == 0 ? width : 0;
  return width % here == 0 ? here : 0;
}

}  // namespace

RankLayout rank_layout(const recipe::Recipe& recipe, const comm::Seat& seat, const Standing& standing) {
  const auto& p = recipe.parallel;
  RankLayout layout;
  layout.data = data_ranks(recipe, data_width(p, seat.world));
  layout.data.per_node = data_per_node(p, layout.data.width(), standing.per_node);
  layout.data.staged = !standing.shares_memory;
  layout.data.near_staged = layout.data.per_node == 0 ? layout.data.staged : !standing.node_shares_memory;
  comm::Mesh mesh;
  mesh.sizes[static_cast<int>(Axis::tensor)] = layout.parts.tensor = static_cast<int>(p.tensor);
  mesh.sizes[static_cast<int>(Axis::context)] = layout.parts.context = static_cast<int>(p.context);
  mesh.sizes[static_cast<int>(Axis::shard)] = layout.data.shard;
  mesh.sizes[static_cast<int>(Axis::replica)] = layout.data.replicas;
  mesh.sizes[static_cast<int>(Axis::pipeline)] = layout.stages.count = static_cast<int>(p.pipeline);
  const comm::Coordinate at = comm::coordinate_of(mesh, seat.rank);
  layout.parts.tensor_rank = at[Axis::tensor];
  layout.parts.product_strands = static_cast<int>(recipe.batch.product_strands);
  layout.parts.sequence = p.sequence && p.tensor > 1;
  layout.parts.context_rank = at[Axis::context];
  layout.parts.heads = p.context_form == "heads";
  layout.parts.sequence_strands = static_cast<int>(recipe.batch.sequence_strands);
  layout.data.shard_rank = at[Axis::shard];
  layout.data.replica = at[Axis::replica];
  layout.stages.self = at[Axis::pipeline];
  layout.stages.schedule = program::schedule_of(p.schedule);
  layout.stages.chunks = p.schedule == "interleaved" && p.pipeline > 1 ? static_cast<int>(p.chunks) : 1;
  return layout;
}

model::SliceShape slice_of(const model::SliceShape& whole, const model::Parts& parts) {
  if (parts.fixes_sequences())
    return {2 * parts.pieces_here() * whole.samples, whole.seq_len / (2 * parts.sequence_strands)};
  if (parts.context == 1) return whole;
  if (parts.heads) return {whole.samples, whole.seq_len / parts.context};
  return {2 * whole.samples, whole.seq_len / (2 * parts.context)};
}

}  // namespace lockstep::run

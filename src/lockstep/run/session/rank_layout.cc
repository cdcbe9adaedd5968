#include "lockstep/run/session/rank_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/mesh.h"
#include "lockstep/model/families/family.h"

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

namespace {

// One way out for too many pieces: fewer on each stage, or fewer stages, of which these ranks are a multiple.
std::string fewer_pieces(const program::Layout& layout, int blocks) {
  const int stages = layout.stages.count, chunks = blocks / stages;
  if (chunks > 1) return fmt::format("set parallel.chunks={}", chunks);
  if (chunks == 1) return "set parallel.schedule=1f1b";
  int fit = blocks;
  while (stages * layout.ranks.width() % fit != 0) --fit;
  return fmt::format("use at most {} stages (parallel.pipeline={}{} on as many ranks)", blocks, fit,
                     layout.stages.chunks == 1 ? "" : " and parallel.schedule=1f1b");
}

// Pieces that cost about as much as each other.
std::vector<program::Piece> balanced(const model::Model& model, const program::Layout& layout, int pieces) {
  std::vector<double> costs;
  for (const model::Block& block : model.blocks) {
    double cost = 0;
    for (const model::Part part :
         {model::Part::forward, model::Part::backward_input, model::Part::backward_weight}) {
      const model::Cost of = block.cost(layout.slice, part);
      cost +=
          of.flops() + 50.0 * static_cast<double>(of.bytes);  // a byte moved costs as much as some products
    }
    costs.push_back(cost);
  }
  return program::cut_blocks(costs, pieces);
}

// As parallel.stages says it: without the embedding of the first and the head of the last.
std::string in_layers(const std::vector<program::Piece>& cut, int64_t layers) {
  std::vector<std::string> numbers;
  for (const program::Piece& piece : cut) {
    const int64_t begin = std::max(piece.begin, 1), end = std::min<int64_t>(piece.end, layers + 1);
    numbers.push_back(std::to_string(std::max<int64_t>(0, end - begin)));
  }
  return base::join(numbers, ",");
}

std::vector<int64_t> numbers_of(const std::string& by_hand) {
  std::vector<int64_t> layers;
  for (size_t begin = 0; begin <= by_hand.size();) {
    const size_t end = std::min(by_hand.find(',', begin), by_hand.size());
    layers.push_back(std::min(std::atoll(by_hand.substr(begin, end - begin).c_str()), 1LL << 40));
    begin = end + 1;
  }
  return layers;
}

// `even`: the balanced cut, for those whose own does not work.
std::vector<program::Piece> placed(const std::string& by_hand, const model::Model& model,
                                   const std::vector<program::Piece>& even) {
  const std::vector<int64_t> layers = numbers_of(by_hand);
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  const std::string way =
      fmt::format("use parallel.stages={} or leave it empty", in_layers(even, model.layers));
  if (layers.size() != even.size() || sum != model.layers) {
    throw ConfigError(159, fmt::format("parallel.stages = \"{}\" places {} layers in {} chunk{}, but the "
                                       "model has {} layers and the pipeline {} chunk{}: {}",
                                       by_hand, sum, layers.size(), layers.size() == 1 ? "" : "s",
                                       model.layers, even.size(), even.size() == 1 ? "" : "s", way));
  }
  std::vector<program::Piece> cut;
  int at = 0;
  for (size_t k = 0; k < layers.size(); ++k) {  // the embedding goes with the first, the head with the last
    const int end = k + 1 == layers.size() ? static_cast<int>(model.blocks.size())
                                           : at + static_cast<int>(layers[k]) + (k == 0 ? 1 : 0);
    if (end == at) {
      throw ConfigError(
          159, fmt::format("parallel.stages = \"{}\": chunk {} would be empty: {}", by_hand, k + 1, way));
    }
    cut.push_back({at, end});
    at = end;
  }
  return cut;
}

}  // namespace

std::vector<program::Piece> cut_stages(const recipe::Recipe& recipe, const model::Model& model,
                                       const program::Layout& layout) {
  const int pieces = layout.stages.count * layout.stages.chunks;
  const auto blocks = static_cast<int>(model.blocks.size());
  const std::string& by_hand = recipe.parallel.stages;
  const auto named = std::count(by_hand.begin(), by_hand.end(), ',') + 1;
  if (layout.stages.count == 1 && named > 1) {
    throw ConfigError(
        159, fmt::format("parallel.stages = \"{}\" places layers on {} stages, but parallel.pipeline = 1; "
                         "set parallel.pipeline={}, or leave parallel.stages empty",
                         by_hand, named, named));
  }
  if (pieces > blocks) {
    throw ConfigError(
        158, fmt::format("parallel.pipeline = {} in {} chunk{} each needs {} blocks, but the model has {} "
                         "({} layers, embedding and head): {}, or use more layers",
                         layout.stages.count, layout.stages.chunks, layout.stages.chunks == 1 ? "" : "s",
                         pieces, blocks, model.layers, fewer_pieces(layout, blocks)));
  }
  if (layout.stages.count == 1 && by_hand.empty()) return {};
  std::vector<program::Piece> cut = balanced(model, layout, pieces);
  if (!by_hand.empty()) cut = placed(by_hand, model, cut);
  return layout.stages.count == 1 ? std::vector<program::Piece>{} : cut;
}

// --- what sizes do not allow -------------------------------------------------------------------------

namespace {

// `common`: what the size must divide in all, the ranks among it.
void check_divides(const char* key, int64_t parts, const char* size_key, int64_t size, int64_t common,
                   int number) {
  if (size % parts == 0) return;
  throw ConfigError(number, fmt::format("parallel.{} = {} does not divide {} = {}; choose one of {}", key,
                                        parts, size_key, size, base::divisors_near(common, parts)));
}

void check_tensor(const recipe::Recipe::Model& m, int tensor, int64_t ranks) {
  const bool attends = model::find_family(m.family).attends();
  int64_t common = std::gcd(ranks, m.ffn.value);
  if (attends) common = std::gcd(common, std::gcd(m.heads, m.kv_heads.value));
  const auto check = [&](const char* key, int64_t size) {
    check_divides("tensor", tensor, key, size, common, 164);
  };
  if (attends) check("model.heads", m.heads);
  if (attends) check("model.kv_heads", m.kv_heads.value);
  check("model.ffn", m.ffn.value);
}

// Numbers of strands that would do, for the message.
std::string fitting_strands(int64_t common, int tensor) {
  std::vector<std::string> all = {"1"};
  for (int64_t n = std::max(2, tensor); n <= kernels::kMostAddends && common % n == 0; n *= 2)
    all.push_back(std::to_string(n));
  return base::join(all, ", ");
}

// Keys that neither products nor sequences in strands go with.
std::string excluded_from_strands(const recipe::Recipe& recipe) {
  for (const auto& [there, key] : {std::pair(recipe.precision.compute == "fp8", "precision.compute=fp8"),
                                   std::pair(recipe.tune.method == "lora", "tune.method=lora"),
                                   std::pair(recipe.tune.loss == "dpo", "tune.loss=dpo")}) {
    if (there) return key;
  }
  return "";
}

void check_product_strands(const recipe::Recipe& recipe, const model::Parts& parts) {
  const auto& m = recipe.model;
  const auto strands = static_cast<int64_t>(parts.product_strands);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(161, fmt::format("batch.product_strands = {} {}", strands, why));
  };
  const bool attends = model::find_family(m.family).attends();
  int64_t common = m.ffn.value;
  if (attends) common = std::gcd(common, std::gcd(m.heads, m.kv_heads.value));
  const std::string ways = "; choose one of " + fitting_strands(common, parts.tensor);
  if ((strands & (strands - 1)) != 0) refuse("is not a power of two" + ways);
  if (strands % parts.tensor != 0)
    refuse(fmt::format("is not a multiple of parallel.tensor = {}{}", parts.tensor, ways));
  const auto check = [&](const char* what, int64_t size) {
    if (size % strands != 0) refuse(fmt::format("does not divide {} = {}{}", what, size, ways));
  };
  if (attends) check("model.heads", m.heads);
  if (attends) check("model.kv_heads", m.kv_heads.value);
  check("model.ffn", m.ffn.value);
  if (const std::string key = excluded_from_strands(recipe); !key.empty())
    refuse(fmt::format("does not go with {}; set batch.product_strands=1", key));
}

// Numbers of pieces that would do, for the message.
std::string fitting_pieces(int64_t seq_len, int context) {
  std::vector<std::string> all = {"1"};
  for (int64_t n = std::max(2, context); n <= kernels::kMostAddends && seq_len % (2 * n) == 0; n *= 2)
    all.push_back(std::to_string(n));
  return base::join(all, ", ");
}

void check_sequence_strands(const recipe::Recipe& recipe, const model::Parts& parts) {
  const int64_t pieces = parts.sequence_strands, seq_len = recipe.data.seq_len;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(149, fmt::format("batch.sequence_strands = {} {}", pieces, why));
  };
  const std::string ways = "; choose one of " + fitting_pieces(seq_len, parts.context);
  if (!model::find_family(recipe.model.family).attends())
    refuse(
        fmt::format("cuts sequences, which a model of family {} does not have; set batch.sequence_strands=1",
                    recipe.model.family));
  if ((pieces & (pieces - 1)) != 0) refuse("is not a power of two" + ways);
  if (pieces % parts.context != 0)
    refuse(fmt::format("is not a multiple of parallel.context = {}{}", parts.context, ways));
  if (seq_len % (2 * pieces) != 0)
    refuse(fmt::format("cuts sequences into {} chunks, which do not divide data.seq_len = {}{}", 2 * pieces,
                       seq_len, ways));
  if (parts.fixes_products() && parts.sequence) {  // norms' gradients would be summed in another order
    refuse(
        fmt::format("and batch.product_strands = {} do not go together with parallel.sequence=true; set "
                    "parallel.sequence=false, or one of the two to 1",
                    parts.product_strands));
  }
  const std::string key = excluded_from_strands(recipe);
  if (!key.empty()) refuse(fmt::format("does not go with {}; set batch.sequence_strands=1", key));
}

// When slices and strands are known.
void check_piece_slices(const recipe::Recipe& recipe, const model::Parts& parts) {
  if (parts.context == 1 || recipe.batch.slices.value == recipe.batch.strands.value) return;
  throw ConfigError(
      149,
      fmt::format("batch.sequence_strands = {} on several context ranks needs one slice per strand, so that "
                  "the order of all sums is the same, but there are {} slices in {} strands; set "
                  "batch.strands={}, which changes the bits of the result",
                  parts.sequence_strands, recipe.batch.slices.value, recipe.batch.strands.value,
                  recipe.batch.slices.value));
}

void check_strand_slices(const recipe::Recipe& recipe, const model::Parts& parts) {
  const int64_t slices = recipe.batch.slices.value;
  const int64_t tokens =
      recipe.batch.global / slices * recipe.data.seq_len / std::max(parts.context, parts.sequence_strands);
  if (tokens % parts.product_strands != 0) {
    throw ConfigError(
        161, fmt::format("batch.product_strands = {} does not divide the {} tokens of a slice on one "
                         "rank; change batch.slices or data.seq_len, or choose one of {}",
                         parts.product_strands, tokens, fitting_strands(tokens, parts.tensor)));
  }
  if (parts.tensor > 1 && slices != recipe.batch.strands.value) {
    throw ConfigError(
        161,
        fmt::format(
            "batch.product_strands = {} on several tensor ranks needs one slice per strand, so that the "
            "order of all sums is the same, but there are {} slices in {} strands; set batch.strands={}, "
            "which changes the bits of the result",
            parts.product_strands, slices, recipe.batch.strands.value, slices));
  }
}

void check_ring(int64_t seq_len, int context, int64_t ranks) {
  const int64_t runs = int64_t{2} * context;
  if (seq_len % runs == 0) return;
  throw ConfigError(
      165, fmt::format("parallel.context = {} splits sequences into {} pieces, which do not divide "
                       "data.seq_len = {}; choose one of {}, or data.seq_len={}",
                       context, runs, seq_len,
                       seq_len % 2 == 0 ? base::divisors_near(std::gcd(seq_len / 2, ranks), context) : "1",
                       base::round_up(seq_len, runs)));
}

void check_heads(const recipe::Recipe& recipe, const model::Parts& parts, int64_t ranks) {
  const auto& m = recipe.model;
  const int64_t seq_len = recipe.data.seq_len;
  const int shares = parts.fixes_products() ? parts.product_strands : parts.tensor;
  int64_t heads = 0, kv_heads = 0;  // that each of them deals out; none: a family without attention
  if (model::find_family(m.family).attends()) heads = m.heads / shares, kv_heads = m.kv_heads.value / shares;
  const int64_t common = std::gcd(std::gcd(seq_len, ranks), std::gcd(heads, kv_heads));
  const std::string ways =
      base::divisors_near(common, parts.context) +
      (seq_len % (int64_t{2} * parts.context) == 0 ? ", or parallel.context_form=ring" : "");
  if (seq_len % parts.context != 0) {
    throw ConfigError(165,
                      fmt::format("parallel.context = {} does not divide data.seq_len = {}; choose one of {}",
                                  parts.context, seq_len, ways));
  }
  if (heads % parts.context == 0 && kv_heads % parts.context == 0) return;
  throw ConfigError(
      165,
      fmt::format("parallel.context = {} with context_form \"heads\" distributes the {} heads and {} "
                  "kv_heads of each {}, which it does not divide; choose one of {}",
                  parts.context, heads, kv_heads,
                  parts.fixes_products() ? "product strand (batch.product_strands)" : "tensor rank", ways));
}

}  // namespace

void check_parts(const recipe::Recipe& recipe, const model::Parts& parts, int world) {
  const int64_t of_stage = world / recipe.parallel.pipeline;
  check_tensor(recipe.model, parts.tensor, of_stage / parts.context);
  if (parts.fixes_products()) check_product_strands(recipe, parts);
  if (parts.fixes_sequences()) check_sequence_strands(recipe, parts);
  if (parts.context == 1) return;
  if (parts.heads) {
    check_heads(recipe, parts, of_stage / parts.tensor);
  } else {
    check_ring(recipe.data.seq_len, parts.context, of_stage / parts.tensor);
  }
}

void check_own_model(const model::Parts& parts) {
  if (parts.fixes_products()) {
    throw ConfigError(
        161,
        "batch.product_strands is for the built-in families: your own model's blocks do not say "
        "how they are split; set batch.product_strands=1");
  }
  if (parts.fixes_sequences()) {
    throw ConfigError(
        149,
        "batch.sequence_strands is for the built-in families: the program does not know whether "
        "your own model's inputs are sequences; set batch.sequence_strands=1");
  }
  if (parts.tensor == 1 && parts.context == 1) return;
  throw ConfigError(166,
                    "your own model cannot be split by parallel.tensor or parallel.context, because its "
                    "blocks do not say how; data, zero and pipeline layouts work");
}

void check_strands(const recipe::Recipe& recipe, const program::DataRanks& ranks) {
  const int64_t strands = recipe.batch.strands.value, width = ranks.width();
  if (width > strands) {
    int64_t enough = recipe.batch.slices.value;
    for (int64_t n = recipe.batch.slices.value; n >= width; --n) {
      if (recipe.batch.slices.value % n == 0) enough = n;
    }
    throw ConfigError(
        154, enough >= width
                 ? fmt::format("batch.strands = {} allows at most {} data ranks, but {} were started; start "
                               "fewer, or set batch.strands={}, which changes the bits of the result",
                               strands, strands, width, enough)
                 : fmt::format(
                       "batch.slices = {} in {} strand{} cannot be distributed over {} data ranks; start "
                       "fewer, or set batch.slices to a multiple of {}, which changes the bits of the result",
                       recipe.batch.slices.value, strands, strands == 1 ? "" : "s", width, width));
  }
  if (!ranks.exact && strands % width != 0) {
    int64_t even = base::round_up(strands, width);  // strands that the slices allow
    while (even <= recipe.batch.slices.value && recipe.batch.slices.value % even != 0) even += width;
    const std::string way = even <= recipe.batch.slices.value ? fmt::format("set batch.strands={}", even)
                                                              : "start a different number";
    throw ConfigError(156, fmt::format("run.exact = false needs batch.strands = {} to be a multiple of the "
                                       "{} data ranks: {}, or keep run.exact = true",
                                       strands, width, way));
  }
}

void check_slices(const recipe::Recipe& recipe, const program::DataRanks& ranks,
                  const program::Stages& stages, const model::Parts& parts) {
  const int64_t slices = recipe.batch.slices.value,
                tokens = recipe.batch.global / slices * recipe.data.seq_len;
  if (parts.fixes_products()) check_strand_slices(recipe, parts);
  if (parts.fixes_sequences()) check_piece_slices(recipe, parts);
  const int64_t together = tokens / std::max(parts.context, parts.sequence_strands);
  if (parts.sequence && together % parts.tensor != 0) {
    throw ConfigError(
        167,
        fmt::format("parallel.sequence splits the {} tokens of {} over {} tensor ranks, which do not divide "
                    "them; change batch.slices or data.seq_len, or set parallel.sequence=false",
                    together,
                    parts.fixes_sequences() ? "each piece of a slice (batch.sequence_strands)" : "a slice",
                    parts.tensor));
  }
  if (stages.count == 1) return;
  const program::Deal deal = ranks.deal(recipe.batch.strands.value);
  const int64_t per_strand = slices / recipe.batch.strands.value;
  for (int replica = 0; replica < ranks.replicas; ++replica) {
    for (int shard_rank = 0; shard_rank < ranks.shard; ++shard_rank) {
      const auto own = static_cast<int64_t>(deal.of_rank(replica, shard_rank).size()) * per_strand;
      const std::string why = program::cannot(stages.schedule, stages.count, stages.chunks, own);
      if (own > 0 && !why.empty()) throw ConfigError(168, why);
    }
  }
}

}  // namespace lockstep::run

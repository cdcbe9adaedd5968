#include "lockstep/run/session/layout_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/kernels/reduce/sum_addends.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/fp8_recipe.h"

namespace lockstep::run {

using base::ConfigError;

namespace {

// `common`: what the size must divide in all, the ranks among it.
void check_divides(const char* key, int64_t parts, const char* size_key, int64_t size, int64_t common,
                   int number) {
  if (size % parts == 0) return;
  const std::string way = common == 1 ? fmt::format("set parallel.{}=1", key)
                                      : "choose one of " + base::divisors_near(common, parts);
  throw ConfigError(
      number, fmt::format("parallel.{} = {} does not divide {} = {}; {}", key, parts, size_key, size, way));
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

void check_product_strands(const recipe::Recipe& recipe, const model::Parts& parts) {
  const auto& m = recipe.model;
  const auto strands = static_cast<int64_t>(parts.product_strands);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(161, fmt::format("batch.product_strands = {} {}", strands, why));
  };
  const bool attends = model::find_family(m.family).attends();
  const int64_t unit = model::product_unit(recipe), head = m.head_dim.value;
  int64_t common = m.ffn.value / unit;
  if (attends) {
    common = std::gcd(common, std::gcd(m.heads, m.kv_heads.value));
    common =
        std::gcd(common, std::gcd(m.heads * head / unit, (m.heads + 2 * m.kv_heads.value) * head / unit));
  }
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
  if (recipe.tune.loss == "dpo")
    refuse("does not go with tune.loss=dpo, which weighs whole sequences; set batch.sequence_strands=1");
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
  const int shares = parts.product_parts();
  int64_t heads = 0, kv_heads = 0;  // that each of them takes a part of; none: a family without attention
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

void check_both_strands(const model::Model& one) {
  for (const model::Block& block : one.blocks) {
    for (const model::ParamSpec& spec : block.params()) {
      if (!spec.partial || spec.train.frozen) continue;
      throw ConfigError(
          149, fmt::format("batch.sequence_strands and batch.product_strands do not go together here: the "
                           "gradient of {} is summed over both, in an order that would depend on the "
                           "layout; set one of them to 1, or freeze it",
                           spec.name));
    }
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
  const program::StrandAssignment assignment = ranks.assignment(recipe.batch.strands.value);
  const int64_t per_strand = slices / recipe.batch.strands.value;
  for (int replica = 0; replica < ranks.replicas; ++replica) {
    for (int shard_rank = 0; shard_rank < ranks.shard; ++shard_rank) {
      const auto own = static_cast<int64_t>(assignment.of_rank(replica, shard_rank).size()) * per_strand;
      const std::string why = program::cannot(stages.schedule, stages.count, stages.chunks, own);
      if (own > 0 && !why.empty()) throw ConfigError(168, why);
    }
  }
}

}  // namespace lockstep::run

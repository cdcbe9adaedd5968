#include "lockstep/run/session/stage_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::run {

using base::ConfigError;

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

}  // namespace lockstep::run

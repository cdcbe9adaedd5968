#include "lockstep/model/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::model {

double Cost::flops() const {
  double total = attention_flops;
  for (const Product& p : products) total += 2.0 * static_cast<double>(p.m) * p.n * p.k;
  return total;
}

double Cost::fp8_flops() const {
  double total = 0;
  for (const Product& p : products) total += p.fp8 ? 2.0 * static_cast<double>(p.m) * p.n * p.k : 0;
  return total;
}

Cost sum(Cost a, const Cost& b) {
  a.products.insert(a.products.end(), b.products.begin(), b.products.end());
  a.attention_flops += b.attention_flops;
  a.attention_length = std::max(a.attention_length, b.attention_length);
  a.attention_head = std::max(a.attention_head, b.attention_head);
  a.bytes += b.bytes;
  return a;
}

Block::Block(std::string name, std::vector<std::unique_ptr<Segment>> segments)
    : name_(std::move(name)), segments_(std::move(segments)) {}

void Block::wrap_segments(const std::function<std::unique_ptr<Segment>(std::unique_ptr<Segment>)>& wrap) {
  for (std::unique_ptr<Segment>& segment : segments_) segment = wrap(std::move(segment));
}

Block block_of(std::string name, std::unique_ptr<Segment> segment) {
  std::vector<std::unique_ptr<Segment>> segments;
  segments.push_back(std::move(segment));
  return {std::move(name), std::move(segments)};
}

std::vector<ParamSpec> Block::params_of(size_t segment) const {
  std::vector<ParamSpec> specs = segments_[segment]->params();
  for (ParamSpec& spec : specs) {
    const auto known = treatments_.find(spec.name);
    if (known != treatments_.end()) spec.train = known->second;
  }
  return specs;
}

std::vector<ParamSpec> Block::params() const {
  std::vector<ParamSpec> all;
  for (size_t g = 0; g < segments_.size(); ++g) {
    for (ParamSpec& spec : params_of(g)) {
      spec.key = segments_[g]->name() + "." + spec.key;
      all.push_back(std::move(spec));
    }
  }
  return all;
}

void Block::treat(const std::string& name, const Treatment& treatment) { treatments_[name] = treatment; }

namespace {

// Of the whole parameters, each counted once however many parts of it are here.
template <class Counts>
int64_t elements_of(const std::vector<ParamSpec>& specs, Counts counts) {
  std::set<std::string> seen;
  int64_t count = 0;
  for (const ParamSpec& spec : specs) {
    if (counts(spec) && seen.insert(spec.name).second) count += whole_shape(spec.cut, spec.shape).numel();
  }
  return count;
}

}  // namespace

int64_t Block::param_count() const {
  return elements_of(params(), [](const ParamSpec& spec) { return spec.holds_values(); });
}

int64_t Block::trained_count() const {
  return elements_of(params(), [](const ParamSpec& spec) { return spec.trained(); });
}

Cost Block::cost_of(size_t segment, const SliceShape& shape, Part part) const {
  Cost cost = segments_[segment]->cost(shape, part);
  for (const ParamSpec& spec : params_of(segment)) {
    if ((spec.key == "weight" || spec.key.starts_with("weight#")) && spec.train.frozen)
      std::erase_if(cost.products, [](const Cost::Product& p) { return p.of_weight; });
  }
  return cost;
}

Cost Block::cost(const SliceShape& shape, Part part) const {
  Cost total;
  for (size_t g = 0; g < segments_.size(); ++g) total = sum(std::move(total), cost_of(g, shape, part));
  return total;
}

bool Model::can_be_captured() const {
  return std::all_of(blocks.begin(), blocks.end(), [](const Block& block) {
    return std::all_of(block.segments().begin(), block.segments().end(),
                       [](const std::unique_ptr<Segment>& segment) { return segment->can_be_captured(); });
  });
}

int64_t Model::param_count() const {
  int64_t count = 0;
  for (const Block& block : blocks) count += block.param_count();
  return count;
}

int64_t Model::trained_count() const {
  int64_t count = 0;
  for (const Block& block : blocks) count += block.trained_count();
  return count;
}

double Model::flops_per_token(int64_t length) const {
  // One token; where sequences are computed in pieces, one of each chunk.
  const SliceShape shape{parts.fixes_sequences() ? 2 * parts.pieces_here() : 1, 1};
  double flops = 0;
  bool trained = false;  // something up to this block
  for (const Block& block : blocks) {
    trained |= block.trained_count() > 0;
    for (const Part part : {Part::forward, Part::backward_input, Part::backward_weight}) {
      if (part != Part::forward && !trained) continue;
      for (const Cost::Product& p : block.cost(shape, part).products)
        flops += 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) /
                 static_cast<double>(shape.tokens());
    }
    if (block.cost(shape, Part::forward).attention_flops > 0)
      flops += (trained ? 12.0 : 4.0) * static_cast<double>(hidden) * static_cast<double>(length);
  }
  return flops;
}

}  // namespace lockstep::model

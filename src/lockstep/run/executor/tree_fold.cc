#include "lockstep/run/executor/tree_fold.h"

#include "lockstep/base/error.h"

namespace lockstep::run {

namespace {

// A value on the stack: the inputs below a node of the tree, and how they are joined.
struct Value {
  std::vector<Partial> inputs;
  std::vector<uint8_t> merges;
  int kept_at = -1;  // it is the unchanged level of the stack
};

kernels::TreeSum pass_of(const Value& value) {
  kernels::TreeSum sum;
  sum.inputs = static_cast<int>(value.inputs.size());
  for (size_t k = 0; k < value.inputs.size(); ++k) {
    sum.from[k] = value.inputs[k].at;
    sum.merges[k] = value.merges[k];
  }
  return sum;
}

// Makes one input of many, in memory that one of them owns.
void shorten(Value& value, std::vector<FoldPass>& passes) {
  float* place = nullptr;
  for (const Partial& input : value.inputs) place = place != nullptr ? place : input.scratch;
  LS_ASSERT(place != nullptr,
            "a sum of more inputs than one call supports, and no workspace for partial sums");
  FoldPass pass{-1, pass_of(value)};
  pass.sum.out = place;
  passes.push_back(pass);
  value = {{{{value.inputs.front().run.begin, value.inputs.back().run.end}, place, place}}, {0}, -1};
}

Value join(Value left, Value right, std::vector<FoldPass>& passes) {
  if (left.inputs.size() + right.inputs.size() > static_cast<size_t>(kernels::kTreeInputs)) {
    shorten(left.inputs.size() > right.inputs.size() ? left : right, passes);
  }
  left.inputs.insert(left.inputs.end(), right.inputs.begin(), right.inputs.end());
  left.merges.insert(left.merges.end(), right.merges.begin(), right.merges.end());
  ++left.merges.back();
  left.kept_at = -1;
  return left;
}

}  // namespace

std::vector<FoldPass> fold(int64_t strands, const std::vector<Partial>& kept,
                           const std::vector<Partial>& fresh) {
  std::vector<FoldPass> passes;
  program::Stack stack(strands);
  std::vector<Value> values;
  const auto push = [&](const Partial& partial, int kept_at) {
    values.push_back({{partial}, {0}, kept_at});
    for (int joined = stack.push(partial.run); joined > 0; --joined) {
      Value right = std::move(values.back());
      values.pop_back();
      values.back() = join(std::move(values.back()), std::move(right), passes);
    }
  };
  for (size_t k = 0; k < kept.size(); ++k) push(kept[k], static_cast<int>(k));
  for (const Partial& partial : fresh) push(partial, -1);
  for (size_t level = 0; level < values.size(); ++level) {
    if (values[level].kept_at == static_cast<int>(level)) continue;
    passes.push_back({static_cast<int>(level), pass_of(values[level])});
  }
  return passes;
}

}  // namespace lockstep::run

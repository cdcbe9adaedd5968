// What the reference model of preference tuning says of each sample: the sum of the log-probabilities of the
// tokens that are trained on. Computed once from the weights that the run starts with
// (run/loop/references.h).
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

struct References {
  std::vector<double> train = {}, eval = {};  // by the dataset's samples

  bool empty() const { return train.empty() && eval.empty(); }
  const std::vector<double>& of(Split split) const { return split == Split::train ? train : eval; }
  std::vector<double>& of(Split split) { return split == Split::train ? train : eval; }
};

}  // namespace lockstep::data

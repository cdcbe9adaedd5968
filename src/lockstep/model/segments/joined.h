// Parameters that lie side by side, whose gradients one product writes at once (ParamSpec::joined).
#pragma once

#include <vector>

#include "lockstep/model/block.h"

namespace lockstep::model {

struct Joined {
  std::vector<ParamSpec> params;
  int64_t count() const {
    int64_t sum = 0;
    for (const ParamSpec& spec : params) sum += spec.shape.numel();
    return sum;
  }
};

// Each parameter in the order of `specs`, with those that are joined to it.
inline std::vector<Joined> joined_params(std::vector<ParamSpec> specs) {
  std::vector<Joined> all;
  for (ParamSpec& spec : specs) {
    if (all.empty() || !spec.joined) all.emplace_back();
    all.back().params.push_back(std::move(spec));
  }
  return all;
}

}  // namespace lockstep::model

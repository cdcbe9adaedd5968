// Two runs of the same recipe, compared: losses step by step, gradients tensor by tensor, and every bit.
//
// Gradients are read from the first optimizer moment after step 1, which is a known multiple of them; what
// clipping divided by is multiplied back, so that a fault in one tensor shows in that one and not in all.
// A difference is relative to the largest value of its tensor.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/recipe/recipe.h"
#include "lockstep/verify/small_recipe.h"

namespace lockstep::verify {

struct Step {
  int64_t step = 0;
  double loss = 0, grad_norm = 0;
  std::string loss_hex, params_hash;
};

// What a run folder holds of it.
struct Run {
  std::string folder;
  std::vector<Step> steps;
  double memory_gib = 0;  // the most of a logged step
};
Run read_run(const std::string& folder);  // DataError 622 names what is missing or damaged

struct Tolerance {
  bool bitwise = true;  // nothing but the same bits will do
  double loss = 0, gradient = 0;
};
// What tensor and context layouts are held to. Measured; docs/verify.md says how.
Tolerance tolerance_of(const std::string& compute);  // "fp32", "bf16", "fp16"

// The first block whose gradient is wrong.
struct Blame {
  int block = -1;
  std::string block_name, tensor;
  double difference = 0;
  int blocks = 0;  // how many are wrong
};

struct Difference {
  bool same_bits = false;  // of all losses, and of all weights and moments after every step
  double loss = 0;         // largest relative difference of a step's
  double gradient = 0;     // largest difference of step 1, relative to its tensor's largest value
  std::map<std::string, double> by_tensor;  // of those whose bits differ, step 1
  std::optional<Blame> blame;
  std::string problem;  // why the runs cannot be compared; empty: they can
  bool within(const Tolerance& tolerance) const;
};

// Where the loss of step 1 agrees the fault lies in the backward pass, and the first block is the one that
// it reaches first; otherwise it is the first in model order.
Difference compare(const Run& reference, const Run& other, const std::vector<BlockNames>& blocks,
                   const recipe::Recipe& recipe, const Tolerance& tolerance);

// Whether two checkpoints hold the same bits under the same names; what differs first, or empty.
std::string differing_tensor(const std::string& folder, const std::string& other);

}  // namespace lockstep::verify

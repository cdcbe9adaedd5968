// What would fit: the cheapest combination of slices, strands, recomputation and moments whose step needs no
// more memory than there is. Programs are compiled and placed, nothing is allocated.
//
//     if (const auto found = cheapest_fitting(plan, {.recompute = true}, plan.available_bytes)) ...
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/run/session/session.h"

namespace lockstep::run {

// What may be changed.
struct Freedom {
  bool slices = false;        // more of them
  bool fewer_slices = false;  // or fewer
  bool strands = false;       // fewer, or as many as slices
  bool recompute = false;     // more is computed again
  bool moments = false;       // bf16
  bool offload = false;       // moments in the host's memory
  bool logits = false;        // fewer rows of logits at a time
};
constexpr Freedom kSameBits{.recompute = true, .offload = true};
constexpr Freedom kAllFreedom{
    .slices = true, .strands = true, .recompute = true, .moments = true, .offload = true, .logits = true};

struct Fitting {
  Variant variant;
  program::MemoryPlan memory;
};

// Looks for variants of one plan that need at most `bytes`, and remembers what it has compiled: its questions
// have much in common.
class FittingSearch {
 public:
  FittingSearch(const Plan& plan, int64_t bytes);
  ~FittingSearch();
  FittingSearch(const FittingSearch&) = delete;
  FittingSearch& operator=(const FittingSearch&) = delete;

  // The variant that costs least time among those that fit; nothing when none does. `wanted`: only of those
  // that it likes.
  std::optional<Fitting> cheapest(const Freedom& freedom,
                                  const std::function<bool(const Variant&)>& wanted = {});
  int compiled() const;  // programs so far

 private:
  class Body;
  std::unique_ptr<Body> body_;
};

std::optional<Fitting> cheapest_fitting(const Plan& plan, const Freedom& freedom, int64_t bytes);

// The one that needs least, and how many there are to choose from.
struct Least {
  Fitting fitting;
  size_t combinations = 0;
};
Least least_memory(const Plan& plan, const Freedom& freedom);

bool has_segment(const model::Model& model, const std::string& name);

// The keys that differ from the plan's, as words for a command line: "batch.slices=64 memory.recompute=full".
std::string change_words(const Plan& plan, const Variant& variant);
// What they cost: "smaller products; other bits".
std::string change_price(const Plan& plan, const Variant& variant);

}  // namespace lockstep::run

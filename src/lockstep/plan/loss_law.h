// The loss to expect of a model and so many tokens, by a scaling law of Chinchilla's form: E + A / N^alpha +
// B / D^beta.
//
// What a law was fitted on (its data, its tokenizer) decides E, so a law alone says how losses differ more
// than what they are. One finished run of the same data shifts E so that the law passes through it.
//
//     const LossEstimate e = expect_loss({.parameters = 8e9, .tokens = 2e10}, published_laws(), finished);
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::plan {

struct LossLaw {
  std::string name, source;
  double e = 0, a = 0, b = 0, alpha = 0, beta = 0;
  double reducible(double parameters, double tokens) const;  // what stands above E
};

// Fits of the same experiments by two groups; where they differ, nobody knows better.
const std::vector<LossLaw>& published_laws();
// "E=1.69 A=406 B=411 alpha=0.34 beta=0.28", a law of one's own. ConfigError 109.
LossLaw parse_law(const std::string& words);

struct TrainedPoint {
  double parameters = 0, tokens = 0;
  double loss = 0;  // 0: not known, it is what is asked
};

struct LossEstimate {
  double loss = 0, low = 0, high = 0;  // the mean of the laws, and their ends
  bool shifted = false;                // to pass through a finished run
  double stretch = 0;                  // how many times more computation than that run
};
LossEstimate expect_loss(const TrainedPoint& asked, const std::vector<LossLaw>& laws,
                         const std::optional<TrainedPoint>& finished);

}  // namespace lockstep::plan

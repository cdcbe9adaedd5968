#include "lockstep/plan/loss_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::plan {

double LossLaw::reducible(double parameters, double tokens) const {
  return a / std::pow(parameters, alpha) + b / std::pow(tokens, beta);
}

const std::vector<LossLaw>& published_laws() {
  static const std::vector<LossLaw> laws = {
      {.name = "Hoffmann et al. 2022",
       .source = "Training Compute-Optimal Large Language Models, equation 10: arXiv 2203.15556",
       .e = 1.69,
       .a = 406.4,
       .b = 410.7,
       .alpha = 0.34,
       .beta = 0.28},
      {.name = "Besiroglu et al. 2024",
       .source = "Chinchilla Scaling: A replication attempt, arXiv 2404.10102",
       .e = 1.8172,
       .a = 482.01,
       .b = 2085.43,
       .alpha = 0.3478,
       .beta = 0.3658},
  };
  return laws;
}

LossLaw parse_law(const std::string& words) {
  std::map<std::string, double> values;
  std::istringstream in(words);
  for (std::string word; in >> word;) {
    const size_t equals = word.find('=');
    const auto number =
        base::parse_number<double>(equals == std::string::npos ? "" : word.substr(equals + 1));
    if (number && std::isfinite(*number)) values[word.substr(0, equals)] = *number;
  }
  const LossLaw law{.name = "your law",
                    .source = words,
                    .e = values["E"],
                    .a = values["A"],
                    .b = values["B"],
                    .alpha = values["alpha"],
                    .beta = values["beta"]};
  if (values.size() == 5 && law.a > 0 && law.b > 0 && law.alpha > 0 && law.beta > 0 && law.e >= 0) return law;
  throw base::ConfigError(
      109, fmt::format("--loss {}: expected a run folder, chinchilla, or a law such as \"E=1.69 "
                       "A=406 B=411 alpha=0.34 beta=0.28\"",
                       base::quoted(words)));
}

LossEstimate expect_loss(const TrainedPoint& asked, const std::vector<LossLaw>& laws,
                         const std::optional<TrainedPoint>& finished) {
  LossEstimate estimate{.low = INFINITY, .high = -INFINITY, .shifted = finished.has_value()};
  for (const LossLaw& law : laws) {
    const double e =
        finished ? finished->loss - law.reducible(finished->parameters, finished->tokens) : law.e;
    const double loss = std::max(0.0, e) + law.reducible(asked.parameters, asked.tokens);
    estimate.low = std::min(estimate.low, loss), estimate.high = std::max(estimate.high, loss);
    estimate.loss += loss / static_cast<double>(laws.size());
  }
  if (finished)
    estimate.stretch = asked.parameters * asked.tokens / (finished->parameters * finished->tokens);
  return estimate;
}

}  // namespace lockstep::plan

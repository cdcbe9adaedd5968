// What sampling should draw, and whether what was drawn is that. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "lockstep/run/reference/models.h"

namespace lockstep::reference {

// Logits of what follows a text.
inline std::vector<double> logits_after(const Words& words, Weights& weights,
                                        const std::vector<int32_t>& text) {
  Tape tape;
  const Node all = LanguageModel(words, weights).logits(tape, text, text.size(), {});
  return {all->value.end() - static_cast<std::ptrdiff_t>(all->columns), all->value.end()};
}

// softmax(logits / temperature) among the k highest; 0: among all.
inline std::vector<double> chances(const std::vector<double>& logits, double temperature, size_t top_k) {
  std::vector<double> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double least = top_k > 0 && top_k < sorted.size() ? sorted[top_k - 1] : sorted.back();
  std::vector<double> result(logits.size(), 0);
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= least) total += result[i] = std::exp((logits[i] - sorted[0]) / temperature);
  }
  for (double& chance : result) chance /= total;
  return result;
}

// Pearson's chi-square in standard deviations above what chance gives; rare tokens are taken together.
inline double chi_square_excess(const std::vector<double>& counts, const std::vector<double>& chances,
                                double draws) {
  double chi = 0, cells = 0, rare = 0, rare_count = 0;
  const auto add = [&](double count, double expected) {
    chi += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    if (chances[i] * draws >= 8) {
      add(counts[i], chances[i] * draws);
    } else {
      rare += chances[i] * draws, rare_count += counts[i];
    }
  }
  if (rare >= 8) add(rare_count, rare);
  return (chi - (cells - 1)) / std::sqrt(2 * std::max(1.0, cells - 1));
}

// How much likelier or less likely than expected the drawn tokens were, in standard deviations.
class Surprise {
 public:
  void add(const std::vector<double>& chances, size_t drawn) {
    double mean = 0, square = 0;
    for (const double chance : chances) {
      if (chance > 0)
        mean += chance * std::log(chance), square += chance * std::log(chance) * std::log(chance);
    }
    sum_ += std::log(chances[drawn]) - mean;
    variance_ += square - mean * mean;
  }
  double deviations() const { return sum_ / std::sqrt(variance_); }

 private:
  double sum_ = 0, variance_ = 0;
};

}  // namespace lockstep::reference

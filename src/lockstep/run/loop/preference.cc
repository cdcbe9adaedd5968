#include "lockstep/run/loop/preference.h"

#include "lockstep/base/error.h"

namespace lockstep::run {

PreferenceReport preference_of(const std::vector<double>& sequences, const std::vector<double>& references,
                               double beta) {
  LS_ASSERT(sequences.size() == references.size() && !sequences.empty() && sequences.size() % 2 == 0);
  PreferenceReport report;
  for (size_t i = 0; i < sequences.size(); i += 2) {
    const double chosen = beta * (sequences[i] - references[i]);
    const double rejected = beta * (sequences[i + 1] - references[i + 1]);
    report.chosen += chosen;
    report.rejected += rejected;
    report.accuracy += chosen > rejected ? 1 : 0;
  }
  const auto pairs = static_cast<double>(sequences.size() / 2);
  return {.chosen = report.chosen / pairs,
          .rejected = report.rejected / pairs,
          .accuracy = report.accuracy / pairs};
}

PreferenceReport preference_of(const Session& session, const std::vector<double>& sequences, uint64_t step) {
  const recipe::Recipe& recipe = session.plan.recipe();
  const std::vector<double>& known = session.references.train;
  std::vector<double> references(sequences.size(), 0);
  for (size_t j = 0; j < references.size() && !known.empty(); ++j) {
    const auto position = static_cast<int64_t>(step) * recipe.batch.global + static_cast<int64_t>(j);
    references[j] = known[static_cast<size_t>(
        session.plan.dataset->sample_at(static_cast<uint64_t>(recipe.run.seed), position))];
  }
  return preference_of(sequences, references, recipe.tune.beta);
}

}  // namespace lockstep::run

// What preference tuning says of a step: rewards of its pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/run/session/session.h"
#include "lockstep/run/shared/observer.h"

namespace lockstep::run {

// Of the pairs of `step` (counted from 0), whose samples have these log-probabilities, in the batch's order.
// Every rank knows all references, so each computes the same.
PreferenceReport preference_of(const Session& session, const std::vector<double>& sequences, uint64_t step);

// The same of given numbers, two for each pair.
PreferenceReport preference_of(const std::vector<double>& sequences, const std::vector<double>& references,
                               double beta);

}  // namespace lockstep::run

// data.mix: several datasets as one, each with its share of the samples (recipe/mix.h, mix_schedule.h).
//
// A source is opened as data of its own, with its own evaluation split; it has its own keyed permutation for
// each of its own epochs. Which source stands where follows from the position alone, so any number of ranks
// sees the same order, and a run resumes without a state. The evaluation split holds every source's, in
// proportion over every beginning of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

constexpr const char* kMix = "mix";  // data.kind of such data

// ConfigError 283: data.mix beside keys that name data in another way.
void check_mix(const recipe::Recipe::Data& data);

// What each source would be as data of its own; data.kind is resolved. `must_exist`: see infer_kind().
std::vector<recipe::Recipe::Data> data_of_sources(const recipe::Recipe::Data& data, bool must_exist = true);

std::unique_ptr<Dataset> stand_in_of_mix(const recipe::Recipe& recipe);

}  // namespace lockstep::data

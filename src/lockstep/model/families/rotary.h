// Rotary positions as a recipe's [model] section has them, for the families that rotate: which keys they are,
// what does not go together, and config.json in both directions.
#pragma once

#include <string>
#include <vector>

#include "lockstep/model/families/family.h"
#include "lockstep/model/segments/rope.h"

namespace lockstep::model {

// For Family::reads.
std::vector<std::string> rotary_keys();

RopeOptions rope_options(const recipe::Recipe::Model& model);

// ConfigError 124 (heads that cannot be rotated), 128 (a stretching that does not fit the heads).
void check_rotary(const recipe::Recipe::Model& model);

// Older files have rope_theta and rope_scaling, newer ones rope_parameters with both. `context` is the length
// that the file says.
void read_rotary(const ConfigReader& config, int64_t context, ConfigSettings& settings);
void write_rotary(const recipe::Recipe::Model& model, ConfigWriter& config);
// The length to write. Dynamic scaling begins where transformers reads the model's length, however long the
// sequences are here.
int64_t written_positions(const recipe::Recipe::Model& model);

}  // namespace lockstep::model

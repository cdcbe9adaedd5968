// Rotary positions as a recipe's [model] section has them, for the families that rotate: which keys they are,
// what does not go together, and config.json in both directions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/model/families/family.h"
#include "lockstep/model/segments/rope.h"

namespace lockstep::model {

// For Family::reads.
std::vector<std::string> rotary_keys();

RopeOptions rope_options(const recipe::Recipe::Model& model);

// Columns of a head that are rotated: model.partial_rotary of it.
int64_t rotary_dim(const recipe::Recipe::Model& model);

// ConfigError 124 (heads that cannot be rotated), 128 (a stretching that does not fit the heads).
void check_rotary(const recipe::Recipe::Model& model);

// Older files have rope_theta and rope_scaling, newer ones rope_parameters with both. `context` is the length
// that the file says, the rest what transformers assumes where it says nothing.
struct RotaryDefaults {
  double theta = 10000;
  std::optional<double> partial = {};  // of families that may turn a part of each head; none: refused
  const char* theta_key = "rope_theta";
  const char* partial_key = "partial_rotary_factor";
  std::vector<std::pair<std::string, std::string>> renamed = {};  // types of scaling under older names
  int64_t original = 0;  // original_max_position_embeddings; 0: `context`
};
void read_rotary(const ConfigReader& config, int64_t context, ConfigSettings& settings,
                 const RotaryDefaults& usual = {});
// The same of one object of rope_parameters, where each kind of layer has its own; `outside` is what lies
// around it.
void read_rotary(const ConfigReader& rope, const ConfigReader& outside, int64_t context,
                 ConfigSettings& settings, const RotaryDefaults& usual);
void write_rotary(const recipe::Recipe::Model& model, ConfigWriter& config);
// The length to write. Dynamic scaling begins where transformers reads the model's length, however long the
// sequences are here.
int64_t written_positions(const recipe::Recipe::Model& model);

}  // namespace lockstep::model

// The numerics record: everything outside the recipe that decides the bits.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/run/session/session.h"

namespace lockstep::run {

nlohmann::json make_record(const Plan& plan);
// Sentences: "GPU model was NVIDIA A100, is NVIDIA H200".
std::vector<std::string> record_changes(const nlohmann::json& was, const nlohmann::json& is);

}  // namespace lockstep::run

// A document as YAML, for people and for clients that read it: texts of several lines as blocks, the rest as
// JSON would write it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::jobs {

std::string to_yaml(const nlohmann::ordered_json& document);

}  // namespace lockstep::jobs

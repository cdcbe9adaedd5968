// Which of Google's services suits a run, or whether one workstation would do: `lockstep shop --choose`.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::plan {

// What the choice depends on.
struct RunShape {
  int machines = 1, devices = 1;
  double hours = 0, usd = 0;
  bool spot = false;
  std::string machine;  // "a3-highgpu-8g"
  std::optional<double>
      workstation_hours;               // on one GPU that people have at home; nothing: it does not fit one
  std::string workstation;             // its name
  std::optional<double> wanted_hours;  // at most
};

struct Home {
  std::string name;    // "Vertex AI", "GKE", "Compute Engine", "one workstation"
  std::string target;  // of `lockstep submit --to`; empty: none
  bool suits = false;
  std::string why;
};

// All four, the best first, each with the reason for or against it.
std::vector<Home> rank_homes(const RunShape& shape);

}  // namespace lockstep::plan

// A measured machine as rows of a catalogue, [kernels.this] and [device.this], which `--on this` names and
// runs on that device are forecast with. A colleague renames "this" and adds it with `lockstep prices
// --update`.
#pragma once

#include <string>

#include "lockstep/plan/machine.h"

namespace lockstep::plan {

struct Profile {
  Machine machine;
  std::string device;   // as the device calls itself
  std::string maker;    // "nvidia" or "cpu"
  std::string checked;  // "2026-08-20"
  std::string build;    // that measured it
};
std::string profile_text(const Profile& profile);
std::string profile_path();  // beside catalogue_path(): machine.toml

// The link with which forecasts of two all-reduces agree, one of few bytes and one of many.
struct AllReduced {
  double bytes, seconds;
};
Link link_of(const AllReduced& few, const AllReduced& many, int ranks);

}  // namespace lockstep::plan

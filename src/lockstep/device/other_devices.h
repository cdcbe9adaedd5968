// Devices of other makers: what there is for each, and why a run on it is refused. One row each;
// docs/install.md has the same table.
#pragma once

#include <string>
#include <vector>

namespace lockstep::device {

struct OtherDevice {
  std::string name;               // run.device = "rocm"
  std::vector<std::string> also;  // {"hip", "amd"}
  std::string title;              // "AMD GPUs (ROCm)"
  std::string compiled, has_run;  // what of ours is built for it; what has been seen to run
  std::string why, instead;       // why it is refused; what to do
};

const std::vector<OtherDevice>& other_devices();
// By any of its names, with or without a number ("mps:0"); null: none.
const OtherDevice* find_other_device(const std::string& request);
// One sentence: the row.
std::string refusal_of(const OtherDevice& device);

}  // namespace lockstep::device

// A device that is planned for and is not here: others ask what it is and how much memory it has. Whoever
// wants memory of it or work done has made a mistake (base::Bug).
#pragma once

#include <memory>

#include "lockstep/device/device.h"

namespace lockstep::device {

struct Absent {
  Kind kind = Kind::cuda;
  Properties properties = {};
};

std::unique_ptr<Device> absent_device(Absent absent);

}  // namespace lockstep::device

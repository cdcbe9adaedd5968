// How one rank's part of a parameter lies in the whole, where tensor parallelism cuts it.
//
// A parameter is cut along one dimension into equal parts. GPT-2 keeps q, k and v side by side in one matrix:
// there, each of the groups is cut alike, and a rank holds its part of each.
#pragma once

#include "lockstep/device/tensor.h"

namespace lockstep::model {

struct Cut {
  int dim = 0, groups = 1;
  int part = 0, parts = 1;
  bool cuts() const { return parts > 1; }
};

device::Shape whole_shape(const Cut& cut, const device::Shape& part);

}  // namespace lockstep::model

// Datasets that like to be told which samples are read next: what lies in a store takes a while to come, and
// many requests at once take no longer than one.
//
//     if (const auto* told = dynamic_cast<const Announced*>(&dataset)) told->announce(Split::train, samples);
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

class Announced {
 public:
  virtual ~Announced() = default;
  // Returns when all of them can be read without waiting.
  virtual void announce(Split split, std::span<const int64_t> samples) const = 0;
};

}  // namespace lockstep::data

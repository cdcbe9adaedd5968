// Pictures of 12 x 12 pixels, each showing a square, a cross, a circle or a line, drawn from a seed.
//
// A dataset is five functions: how many samples, how large, how to read one, and two that name it. Picture i
// is a function of (seed, i) alone, so nothing is stored and any thread may draw any picture.
#pragma once

#include <bit>
#include <cmath>
#include <string>

#include "lockstep/base/philox.h"
#include "lockstep/data/dataset.h"

class Shapes final : public lockstep::data::Dataset {
 public:
  static constexpr int64_t kSide = 12, kClasses = 4;
  explicit Shapes(uint64_t seed) : seed_(seed) {}

  int64_t vocab() const override { return kClasses; }
  int64_t samples(lockstep::data::Split split) const override {
    return split == lockstep::data::Split::train ? 4096 : 512;
  }
  int64_t inputs_per_sample(int64_t) const override { return kSide * kSide; }
  int64_t labels_per_sample(int64_t) const override { return 1; }

  // Inputs are 32-bit words: here, the bits of floats.
  void read(lockstep::data::Split split, int64_t index, std::span<int32_t> inputs,
            std::span<int32_t> labels) const override {
    const auto key = static_cast<uint64_t>(index) + (split == lockstep::data::Split::eval ? 1000000 : 0);
    const lockstep::base::Random4 draw = lockstep::base::philox(seed_, key, 0);
    labels[0] = static_cast<int32_t>(draw.x % kClasses);
    const double radius = 2.5 + draw.y % 1000 / 500.0;  // 2.5 to 4.5
    const double middle_x = 4.5 + draw.z % 1000 / 500.0, middle_y = 4.5 + draw.w % 1000 / 500.0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double x = static_cast<double>(i % kSide) - middle_x,
                   y = static_cast<double>(i / kSide) - middle_y;
      const double ink = std::max(0.0, 1.0 - distance(labels[0], std::abs(x), std::abs(y), radius));
      const double noise = lockstep::base::unit_float(lockstep::base::philox(seed_, key, 1 + i).x) - 0.5;
      inputs[i] = std::bit_cast<int32_t>(static_cast<float>(ink + 0.6 * noise));
    }
  }

  std::string describe() const override {
    return "shapes " + std::to_string(seed_) + ": 4 kinds of pictures, 12 x 12";
  }
  uint64_t content_hash() const override { return seed_; }

 private:
  // From a pixel, seen from the shape's middle, to the nearest line of the shape.
  static double distance(int32_t kind, double x, double y, double radius) {
    const double outside = std::max(0.0, std::max(x, y) - radius);
    switch (kind) {
      case 0:
        return std::abs(std::max(x, y) - radius);  // square
      case 1:
        return std::min(x, y) + outside;  // cross
      case 2:
        return std::abs(std::hypot(x, y) - radius);  // circle
      default:
        return y + outside;  // line
    }
  }
  uint64_t seed_;
};

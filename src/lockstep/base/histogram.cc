#include "lockstep/base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::base {

// An exponent and the first bit behind the point: 1, 1.5, 2, 3, 4, 6, ...
int bin_of(float value) {
  constexpr int kBias = 127, kMantissaBits = 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFU;
  const int half_octave = static_cast<int>(bits >> (kMantissaBits - 1)) - 2 * (kBias + Histogram::kLowest);
  if (half_octave < 0) return Histogram::kOneSign;
  const int from_zero = std::min(half_octave, Histogram::kOneSign - 1) + 1;
  return std::signbit(value) ? Histogram::kOneSign - from_zero : Histogram::kOneSign + from_zero;
}

double edge_of(int bin) {
  const int from_zero =
      bin <= Histogram::kOneSign ? Histogram::kOneSign - bin : bin - Histogram::kOneSign - 1;
  const double size = std::ldexp(from_zero % 2 == 0 ? 1.0 : 1.5, Histogram::kLowest + from_zero / 2);
  return bin <= Histogram::kOneSign ? -size : size;
}

void Histogram::add(const float* values, int64_t count, float factor) {
  bool none = this->count() == 0;
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i] * factor;
    if (!std::isfinite(value)) {
      ++words_[kBins];
      continue;
    }
    ++words_[static_cast<size_t>(bin_of(value))];
    smallest_ = none ? value : std::min(smallest_, value);
    largest_ = none ? value : std::max(largest_, value);
    none = false;
  }
}

void Histogram::add(const Histogram& other) {
  if (other.count() > 0) {
    const bool none = count() == 0;
    smallest_ = none ? other.smallest_ : std::min(smallest_, other.smallest_);
    largest_ = none ? other.largest_ : std::max(largest_, other.largest_);
  }
  for (size_t i = 0; i < words_.size(); ++i) words_[i] += other.words_[i];
}

Histogram Histogram::of(const uint64_t* words, float smallest, float largest) {
  Histogram made;
  std::copy_n(words, kWords, made.words_.begin());
  made.smallest_ = smallest, made.largest_ = largest;
  return made;
}

int64_t Histogram::count() const {
  int64_t all = 0;
  for (int bin = 0; bin < kBins; ++bin) all += static_cast<int64_t>(words_[static_cast<size_t>(bin)]);
  return all;
}

int Histogram::first() const {
  int bin = 0;
  while (bin < kBins && words_[static_cast<size_t>(bin)] == 0) ++bin;
  return bin;
}

int Histogram::last() const {
  int bin = kBins - 1;
  while (bin >= 0 && words_[static_cast<size_t>(bin)] == 0) --bin;
  return bin;
}

std::vector<double> Histogram::edges() const {
  std::vector<double> edges;
  for (int bin = first(); bin <= last() + 1 && first() < kBins; ++bin) edges.push_back(edge_of(bin));
  return edges;
}

std::vector<int64_t> Histogram::counts() const {
  std::vector<int64_t> counts;
  for (int bin = first(); bin <= last(); ++bin)
    counts.push_back(static_cast<int64_t>(words_[static_cast<size_t>(bin)]));
  return counts;
}

}  // namespace lockstep::base

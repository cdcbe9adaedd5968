// How many values lie where: two bins to an octave, for both signs, and one for what is next to zero.
//
//     Histogram all;
//     all.add(values, count, 1.0F / loss_scale);
//     all.edges(), all.counts()                    // from the first bin that is not empty to the last
//
// Counts of parts add up to those of the whole, so ranks that hold shares agree on them exactly, in every
// layout.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep::base {

class Histogram {
 public:
  static constexpr int kLowest = -48, kHighest = 24;         // octaves: 2^-48 to 2^24; beyond: the last bin
  static constexpr int kOneSign = 2 * (kHighest - kLowest);  // bins
  static constexpr int kBins = 2 * kOneSign + 1;             // the middle one holds |value| < 2^kLowest

  void add(const float* values, int64_t count, float factor);
  void add(const Histogram& other);

  int64_t count() const;  // finite ones
  int64_t not_finite() const { return static_cast<int64_t>(words_[kBins]); }
  float smallest() const { return smallest_; }  // of the finite ones
  float largest() const { return largest_; }
  // One more edge than counts; empty where there is no value.
  std::vector<double> edges() const;
  std::vector<int64_t> counts() const;

  // For a sum over ranks: counts add up, and the extremes' ranks are found by the others' being empty.
  static constexpr int kWords = kBins + 1;
  const std::array<uint64_t, kWords>& words() const { return words_; }
  static Histogram of(const uint64_t* words, float smallest, float largest);

 private:
  int first() const;
  int last() const;
  std::array<uint64_t, kWords> words_{};  // bins, and how many are not finite
  float smallest_ = 0, largest_ = 0;
};

// The lower edge of a bin.
double edge_of(int bin);
int bin_of(float value);

}  // namespace lockstep::base

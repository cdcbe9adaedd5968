// Which source of data.mix stands at a position of the sample order, and how many of it came before.
//
// Over every beginning of the order, a source's count differs from its share by less than 1: position p of n
// sources is scheduled by earliest deadline, where the j-th sample of a source with share w may stand from
// (j - 1)/w on and must stand before j/w; such a schedule always exists. Shares are fractions with a common
// denominator (at most 2^20), so the order repeats, and any position is found in O(log n) without a state.
//
// A source with a limit leaves when it is reached; the others go on with their shares of what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

struct MixShare {
  double weight;      // above 0; only ratios count
  int64_t most = -1;  // samples of this source in all; -1: no limit
};

class MixSchedule {
 public:
  explicit MixSchedule(const std::vector<MixShare>& shares);

  struct Place {
    size_t source;
    int64_t before;  // samples of this source at earlier positions
  };
  Place at(int64_t position) const;
  std::vector<int64_t> counts(int64_t positions) const;  // of each source among the first ones
  double share(size_t source) const;                     // while no source has left
  int64_t length() const { return length_; }             // INT64_MAX: endless. Beyond it, it begins again

 private:
  // The order while the same sources take part.
  struct Phase {
    int64_t begin = 0;
    std::vector<int64_t> before;                // of each source, when it begins
    std::vector<uint16_t> order;                // one period
    std::vector<std::vector<uint32_t>> places;  // of each source in the period
  };
  const Phase& phase_of(int64_t position) const;
  static void schedule(const std::vector<int64_t>& parts, Phase& phase);

  std::vector<int64_t> parts_;  // shares with a common denominator
  std::vector<Phase> phases_;
  int64_t length_ = INT64_MAX;
};

}  // namespace lockstep::data

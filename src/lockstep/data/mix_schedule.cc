#include "lockstep/data/mix_schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"

namespace lockstep::data {
namespace {

constexpr int64_t kLargestPeriod = int64_t{1} << 20, kPeriodOfMany = int64_t{1} << 16;
constexpr size_t kMany = 16;  // sources: each that leaves makes another period

std::vector<int64_t> without_common_factor(std::vector<int64_t> parts) {
  int64_t common = 0;
  for (const int64_t part : parts) common = std::gcd(common, part);
  for (int64_t& part : parts) part /= common;
  return parts;
}

// 0.7, 0.2 and 0.1 are 7, 2 and 1 of 10. Weights that no short fraction meets are rounded to about a
// millionth.
std::vector<int64_t> parts_of(const std::vector<MixShare>& shares, int64_t largest) {
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    std::vector<int64_t> parts;
    double sum = 0;
    for (const MixShare& share : shares) {
      const double scaled = share.weight * scale, whole = std::round(scaled);
      sum += scaled;
      if (whole < 1 || std::abs(scaled - whole) > 1e-9 * scaled || sum > 1e15) break;
      parts.push_back(static_cast<int64_t>(whole));
    }
    if (parts.size() < shares.size()) continue;
    parts = without_common_factor(std::move(parts));
    if (std::accumulate(parts.begin(), parts.end(), int64_t{0}) <= largest) return parts;
  }
  double sum = 0;
  for (const MixShare& share : shares) sum += share.weight;
  std::vector<int64_t> parts;
  for (const MixShare& share : shares) {
    const double part = std::round(share.weight / sum * static_cast<double>(largest / 2));
    parts.push_back(std::max<int64_t>(1, static_cast<int64_t>(part)));
  }
  return without_common_factor(std::move(parts));
}

}  // namespace

void MixSchedule::schedule(const std::vector<int64_t>& parts, Phase& phase) {
  const int64_t period = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  struct Job {
    int64_t time;  // when it may stand, or must have
    size_t source;
    int64_t number;  // j, from 1
    bool operator>(const Job& other) const {
      return time != other.time ? time > other.time : source > other.source;
    }
  };
  using Queue = std::priority_queue<Job, std::vector<Job>, std::greater<>>;
  Queue waiting, due;  // by the time from which they may stand; by their deadline
  phase.order.clear();
  phase.order.reserve(static_cast<size_t>(period));
  phase.places.assign(parts.size(), {});
  for (size_t source = 0; source < parts.size(); ++source) {
    if (parts[source] > 0) waiting.push({0, source, 1});
  }
  for (int64_t now = 0; now < period; ++now) {
    while (!waiting.empty() && waiting.top().time <= now) {
      const Job job = waiting.top();
      waiting.pop();
      due.push({base::divide_up(job.number * period, parts[job.source]), job.source, job.number});
    }
    LS_ASSERT(!due.empty() && due.top().time > now);
    const Job job = due.top();
    due.pop();
    phase.order.push_back(static_cast<uint16_t>(job.source));
    phase.places[job.source].push_back(static_cast<uint32_t>(now));
    waiting.push({job.number * period / parts[job.source], job.source, job.number + 1});
  }
}

MixSchedule::MixSchedule(const std::vector<MixShare>& shares) {
  LS_ASSERT(!shares.empty() && shares.size() <= UINT16_MAX);
  parts_ = parts_of(shares, shares.size() > kMany ? kPeriodOfMany : kLargestPeriod);
  std::vector<int64_t> parts = parts_;
  std::vector<int64_t> before(shares.size(), 0);
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i].most == 0) parts[i] = 0;
  }
  int64_t begin = 0;
  while (std::any_of(parts.begin(), parts.end(), [](int64_t part) { return part > 0; })) {
    Phase phase{.begin = begin, .before = before, .order = {}, .places = {}};
    schedule(without_common_factor(parts), phase);
    const auto period = static_cast<int64_t>(phase.order.size());
    // It ends behind the first place at which a source reaches its limit.
    int64_t end = INT64_MAX;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (parts[i] == 0 || shares[i].most < 0) continue;
      const auto count = static_cast<int64_t>(phase.places[i].size());
      const int64_t last = shares[i].most - before[i] - 1;  // of this phase, from 0
      end = std::min(end,
                     begin + last / count * period + phase.places[i][static_cast<size_t>(last % count)] + 1);
    }
    phases_.push_back(std::move(phase));
    if (end == INT64_MAX) return;
    before = counts(end);
    begin = end;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i].most >= 0 && before[i] >= shares[i].most) parts[i] = 0;
    }
  }
  length_ = begin;
}

const MixSchedule::Phase& MixSchedule::phase_of(int64_t position) const {
  const auto behind = std::upper_bound(phases_.begin(), phases_.end(), position,
                                       [](int64_t at, const Phase& phase) { return at < phase.begin; });
  return *(behind - 1);
}

MixSchedule::Place MixSchedule::at(int64_t position) const {
  LS_ASSERT(position >= 0 && length_ > 0);
  if (position >= length_) position %= length_;
  const Phase& phase = phase_of(position);
  const auto period = static_cast<int64_t>(phase.order.size());
  const int64_t round = (position - phase.begin) / period, within = (position - phase.begin) % period;
  const size_t source = phase.order[static_cast<size_t>(within)];
  const std::vector<uint32_t>& places = phase.places[source];
  const auto rank =
      std::lower_bound(places.begin(), places.end(), static_cast<uint32_t>(within)) - places.begin();
  return {source, phase.before[source] + round * static_cast<int64_t>(places.size()) + rank};
}

std::vector<int64_t> MixSchedule::counts(int64_t positions) const {
  std::vector<int64_t> counts(parts_.size(), 0);
  if (positions <= 0) return counts;
  const Phase& phase = phase_of(std::min(positions, length_) - 1);
  const auto period = static_cast<int64_t>(phase.order.size());
  const int64_t done = std::min(positions, length_) - phase.begin, round = done / period,
                within = done % period;
  for (size_t i = 0; i < counts.size(); ++i) {
    const std::vector<uint32_t>& places = phase.places[i];
    const auto rank =
        std::lower_bound(places.begin(), places.end(), static_cast<uint32_t>(within)) - places.begin();
    counts[i] = phase.before[i] + round * static_cast<int64_t>(places.size()) + rank;
  }
  return counts;
}

double MixSchedule::share(size_t source) const {
  const int64_t period = std::accumulate(parts_.begin(), parts_.end(), int64_t{0});
  return static_cast<double>(parts_[source]) / static_cast<double>(period);
}

}  // namespace lockstep::data

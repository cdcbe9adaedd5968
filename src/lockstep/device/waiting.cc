#include "lockstep/device/waiting.h"

#include <algorithm>
#include <limits>

namespace lockstep::device {

namespace {

constexpr int64_t kWindowNs = 20'000'000;
constexpr double kSlow = 1.3;   // as on a machine of one's own, up to this
constexpr int64_t kFresh = 24;  // windows for which a measurement counts

}  // namespace

WaitingChoice::Job* WaitingChoice::find(const void* function, int64_t items) {
  constexpr size_t kTries = 8;
  const uint64_t mixed = reinterpret_cast<uintptr_t>(function) / 4 * 31 + static_cast<uint64_t>(items) * 7;
  for (size_t k = 0; k < kTries; ++k) {
    Job& job = jobs_[(mixed + k) % jobs_.size()];
    if (job.function == nullptr) job = {function, items, std::numeric_limits<int64_t>::max()};
    if (job.function == function && job.items == items) return &job;
  }
  return nullptr;
}

void WaitingChoice::took(const void* function, int64_t items, int64_t nanoseconds) {
  Job* const job = find(function, items);
  if (job == nullptr) return;  // too many kinds: the others are enough to judge by
  job->best_ns = std::min(job->best_ns, std::max<int64_t>(nanoseconds, 1));
  took_ns_ += nanoseconds;
  best_ns_ += job->best_ns;
  if (took_ns_ >= kWindowNs) end_window();
}

void WaitingChoice::forget() {
  chosen_.store(0);
  jobs_ = {};
  tried_ = {};
  took_ns_ = best_ns_ = window_ = 0;
}

// The one that was fastest; first those of which nothing is known, or only something old.
void WaitingChoice::end_window() {
  const size_t now = chosen_.load(std::memory_order_relaxed);
  const double slowdown = static_cast<double>(took_ns_) / static_cast<double>(best_ns_);
  took_ns_ = best_ns_ = 0;
  tried_[now] = {slowdown, window_++};
  if (slowdown < kSlow) {
    chosen_.store(0, std::memory_order_relaxed);
    return;
  }
  size_t best = now;
  for (size_t k = 0; k < tried_.size(); ++k) {
    const bool fresh = tried_[k].at >= 0 && window_ - tried_[k].at <= kFresh;
    if (!fresh) {
      best = k;
      break;
    }
    if (tried_[k].slowdown < tried_[best].slowdown) best = k;
  }
  chosen_.store(best, std::memory_order_relaxed);
}

}  // namespace lockstep::device

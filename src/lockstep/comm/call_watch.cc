#include "lockstep/comm/call_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kShortestTick{5}, kLongestTick{1000};
constexpr Duration kSlow{1000};  // a call that is open for so long may be asked for: others are told

}  // namespace

void leave_at_once(const std::string& sentence) {
  const std::string line = "lockstep: " + sentence + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(1);
}

CallWatch::Step::Step(CallWatch* watch) : watch_(watch) {
  if (watch_ != nullptr) ++watch_->step_;
}

CallWatch::Step::~Step() {
  if (watch_ != nullptr) ++watch_->step_;
}

CallWatch::CallWatch(Options options)
    : options_(std::move(options)),
      asker_([this](const std::stop_token& stop) { ask(stop); }),
      looker_([this](const std::stop_token& stop) { look(stop); }) {}

std::vector<CallWatch::Open> CallWatch::open_now() const {
  std::vector<Open> open;
  if (const int64_t step = step_; step % 2 == 1) open.emplace_back(this, step);
  if (options_.marks == nullptr || options_.marks->off()) return open;
  for (const Group* group : options_.groups) {
    if (const std::optional<OpenCall> call = group->open_call()) open.emplace_back(group, call->sequence);
  }
  if (options_.marks->looking()) open.emplace_back(options_.marks, options_.marks->looks());
  return open;
}

Duration OpenTimes::tick() const { return std::clamp(timeout_ / 20, kShortestTick, kLongestTick); }

OpenTimes::Look OpenTimes::look(const std::vector<Call>& open, TimePoint now) {
  const TimePoint::duration passed = std::min<TimePoint::duration>(now - last_, 2 * tick());
  const TimePoint::duration slow = std::min(kSlow, timeout_ / 4);
  last_ = now;
  Look found;
  std::map<Call, TimePoint::duration> still;
  TimePoint::duration longest{-1};
  for (const Call& one : open) {
    const auto before = waited_.find(one);
    const auto time = before == waited_.end() ? TimePoint::duration::zero() : before->second + passed;
    still.emplace(one, time);
    found.slow |= time >= slow && time - passed < slow;
    if (time > longest) longest = time, found.late = one;
  }
  if (longest < timeout_) found.late.reset();
  waited_ = std::move(still);
  return found;
}

void CallWatch::look(const std::stop_token& stop) {
  OpenTimes times(options_.timeout, Clock::now());
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, times.tick(), [] { return false; });
    }
    if (stop.stop_requested()) return;
    const OpenTimes::Look found = times.look(open_now(), Clock::now());
    if (found.slow) {
      const std::lock_guard lock(mutex_);
      say_ = true;
      changed_.notify_all();
    }
    if (!found.late) continue;
    const std::string text = sentence(*found.late);
    const std::vector<Open> open = open_now();  // it may have ended meanwhile
    if (std::find(open.begin(), open.end(), *found.late) != open.end()) return options_.end(text);
  }
}

std::string CallWatch::sentence(const Open& late) {
  std::unique_lock lock(mutex_);
  late_ = late;
  found_.clear();
  changed_.notify_all();
  const bool told = changed_.wait_for(lock, options_.time_to_ask, [this] { return !found_.empty(); });
  return base::CommError(520,
                         (told ? found_ : describe(late)) + ". To allow more time, raise parallel.timeout")
      .what();
}

void CallWatch::ask(const std::stop_token& stop) {
  for (;;) {
    std::optional<Open> late;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return say_ || late_; })) return;
      say_ = false;
      late = std::exchange(late_, std::nullopt);
    }
    std::string found;
    try {
      for (Group* group : options_.groups) group->say_where();
      if (late) found = find(*late);
    } catch (const base::Error&) {  // the store is gone: nobody can be asked
      if (late) found = describe(*late);
    }
    const std::lock_guard lock(mutex_);
    found_ = std::move(found);
    changed_.notify_all();
  }
}

// The calls that may hold this rank up, the late one first. Of a driver that does not answer, it is not known
// what its device has begun.
std::vector<CallWatch::Suspect> CallWatch::suspects(const Open& late) const {
  std::vector<Suspect> found;
  for (Group* group : options_.groups) {
    const auto call = late.first == options_.marks ? group->next_call() : group->open_call();
    if (call) found.insert(late.first == group ? found.begin() : found.end(), {group, *call});
  }
  return found;
}

std::string CallWatch::describe(const Suspect& suspect) const {
  const auto& [group, call] = suspect;
  const std::string title = options_.title ? options_.title(call.instruction) : "";
  return fmt::format("{}{} (call {} of group {}, step {}) did not finish within {:g} s", name_of(call.kind),
                     title.empty() ? "" : " of " + title, call.sequence, group->name(), call.step + 1,
                     seconds());
}

// What is known without asking anybody.
std::string CallWatch::describe(const Open& late) const {
  const std::vector<Suspect> calls = suspects(late);
  if (!calls.empty()) return describe(calls[0]);
  return late.first == this ? fmt::format("a step did not finish within {:g} s", seconds())
                            : fmt::format("the device driver did not respond within {:g} s", seconds());
}

// A call that somebody has not come to says more than one in which all are.
std::string CallWatch::find(const Open& late) const {
  const std::vector<Suspect> calls = suspects(late);
  for (const Suspect& one : calls) {
    const std::vector<int> missing = one.group->missing(one.call.sequence);
    if (missing.empty()) continue;
    const bool several = missing.size() > 1;
    return fmt::format("{}: rank{} {} {} not reached it", describe(one), several ? "s" : "",
                       fmt::join(missing, " "), several ? "have" : "has");
  }
  return describe(late) + (calls.empty() ? "" : ": all ranks are in it, but none makes progress");
}

}  // namespace lockstep::comm

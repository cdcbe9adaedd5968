// Sees to it that a rank ends when a call of its device does not.
//
// NCCL gives enqueued work no time limit, and the thread that trains may be inside a CUDA call that comes
// back only when the device does. So a thread of its own looks which calls are open. It touches neither the
// device nor the network, so nothing can hold it. One that stays open for the whole timeout ends the process,
// with a sentence that names the call and the ranks that have not reached it:
//
//     all_to_all of reduce b3 (call 812 of group reduce.data.0, step 17) has not ended within 600 s: rank 1
//     has not reached it
//
// The launcher's verdict on a hang, which says more, has a shorter time. Time in which this process was
// itself stopped does not count.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/device_marks.h"
#include "lockstep/comm/group.h"

namespace lockstep::comm {

// How long calls have been open, told by looks at them that a clock of the caller's goes with. What passes
// between two looks counts for two ticks at most: more has passed where this process was itself stopped, and
// then nobody waited.
class OpenTimes {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Call = std::pair<const void*, int64_t>;  // whose, and which
  OpenTimes(Duration timeout, TimePoint now) : timeout_(timeout), last_(now) {}
  Duration tick() const;  // between looks

  struct Look {
    bool slow = false;              // one has become so slow that others may ask for it
    std::optional<Call> late = {};  // the one that has been open longest, for the whole timeout
  };
  Look look(const std::vector<Call>& open, TimePoint now);

 private:
  Duration timeout_;
  TimePoint last_;
  std::map<Call, TimePoint::duration> waited_;
};

// Says "lockstep: SENTENCE" on standard error and leaves with code 1, whatever other threads are doing.
[[noreturn]] void leave_at_once(const std::string& sentence);

class CallWatch {
 public:
  struct Options {
    std::vector<Group*> groups;          // must outlive this, as `marks`
    const DeviceMarks* marks = nullptr;  // where the groups' calls are marked
    Duration timeout{600000};
    Duration time_to_ask{
        10000};  // for other ranks' word; without it the sentence does not say who is missing
    std::function<std::string(int32_t)> title = {};  // of an instruction: "reduce b3"
    std::function<void(const std::string&)> end = leave_at_once;
  };
  explicit CallWatch(Options options);

  // Where calls cannot be marked one by one: the host waits for a whole step while this lives.
  class Step {
   public:
    explicit Step(CallWatch* watch);  // null: nothing is watched
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    CallWatch* watch_;
  };

 private:
  using Open = OpenTimes::Call;
  std::vector<Open> open_now() const;
  void look(const std::stop_token& stop);
  void ask(const std::stop_token& stop);
  std::string sentence(const Open& late);

  struct Suspect {
    Group* group;
    OpenCall call;
  };
  std::vector<Suspect> suspects(const Open& late) const;
  std::string describe(const Suspect& suspect) const;
  std::string describe(const Open& late) const;
  std::string find(const Open& late) const;
  double seconds() const { return std::chrono::duration<double>(options_.timeout).count(); }

  Options options_;
  std::atomic<int64_t> step_{0};  // odd: the host waits for one
  // What the thread that may be held up is asked for, and what it has found.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool say_ = false;
  std::optional<Open> late_;
  std::string found_;
  std::jthread asker_, looker_;
};

}  // namespace lockstep::comm

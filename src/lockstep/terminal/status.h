// A line of progress that loses no half word, and the time that is left.
//
//     status_line({{"step 3/400"}, {"loss 2.1"}, {"ETA 5 s", 1}}, 20)    "step 3/400  loss 2.1"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::terminal {

// A part of the live line. Where not all fit, whole parts are left out, those with the highest number first.
struct StatusPart {
  std::string text;
  int sacrifice = 0;  // 0: never
};
std::string status_line(std::vector<StatusPart> parts, size_t width);

// How long the steps that are left will take. The first step of a process is not like the others: it opens
// files, fills caches, and on GPUs picks kernels; so it is not counted.
class StepClock {
 public:
  void stepped(double milliseconds);
  double usual_ms() const { return usual_ms_; }  // of the first step, as long as there is no other
  std::string eta(int64_t steps_left) const;     // "2 m 05 s", "<1 s"; empty: nothing left, or not known yet

 private:
  int64_t count_ = 0;
  double usual_ms_ = 0;
};

}  // namespace lockstep::terminal

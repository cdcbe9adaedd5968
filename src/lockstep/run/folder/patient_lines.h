// Lines of a run's own files, such as metrics.jsonl, that wait in memory while they cannot be written: a full
// disk costs a run no step, and the lines are there, in order, once there is room again.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "lockstep/base/file.h"

namespace lockstep::run {

class PatientLines {
 public:
  explicit PatientLines(const std::string& path) : writer_(path) {}  // IoError 802

  // Without its newline. Returns why lines begin to wait; empty when this one is written or others waited
  // before it.
  std::string write(std::string line);
  size_t waiting() const { return waiting_.size(); }
  size_t given_up() const { return given_up_; }  // were the oldest of too many

 private:
  base::LineWriter writer_;
  std::deque<std::string> waiting_;  // oldest first; the oldest go when there are too many
  size_t given_up_ = 0;
};

}  // namespace lockstep::run

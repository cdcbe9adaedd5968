// Histograms of every block's gradient (log.histograms): each rank counts what it holds, and the counts add
// up to the same numbers in every layout. Training's bits do not change.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/histogram.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

class GradientHistograms {
 public:
  explicit GradientHistograms(Session& session) : session_(session) {}
  // Inside a step, where Executor::step calls back: what this rank has. Not collective.
  void count();
  // Of all ranks, by block, each under its name; blocks without a trained parameter are left out. Collective.
  std::vector<std::pair<std::string, base::Histogram>> sum();

 private:
  bool speaks() const;
  void count_block(size_t block, float factor);
  void count_values(const float* values, int64_t count, float factor, base::Histogram& into);
  Session& session_;
  std::vector<base::Histogram> own_;  // by block
};

}  // namespace lockstep::run

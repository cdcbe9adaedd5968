#include "lockstep/run/loop/spike.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace lockstep::run {

namespace {

constexpr size_t kWindow = 64, kEnough = 20;
constexpr double kSpreads = 8, kAbove = 1.3;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool SpikeWatch::jumps(double loss) {
  if (!std::isfinite(loss)) return false;  // that is told elsewhere
  bool jump = false;
  if (recent_.size() >= kEnough) {
    std::vector<double> values(recent_.begin(), recent_.end());
    median_ = median_of(values);
    for (double& value : values) value = std::abs(value - median_);
    jump = loss > kAbove * median_ && loss > median_ + kSpreads * median_of(values);
  }
  if (jump) return true;
  recent_.push_back(loss);
  if (recent_.size() > kWindow) recent_.pop_front();
  return false;
}

SliceLoss worst_slice(Session& session, const kernels::StepInputs& inputs, const HostBatch& batch) {
  const program::Program& program = session.plan.program;
  const auto wanted = [&](int n) {
    const program::Instruction& i = program.instructions[static_cast<size_t>(n)];
    const bool back = i.runs(program::Pass::backward_input) || i.runs(program::Pass::backward_weight);
    return program::can_repeat(i.what) && !back;
  };
  session.executor->step_slowly(inputs, batch, wanted, [](int) {});
  const std::vector<double> losses = session.ranks->sum(session.executor->read_losses());
  SliceLoss worst;
  const auto pieces = static_cast<ptrdiff_t>(program.parts.sequence_strands);
  for (auto at = losses.begin(); at != losses.end(); at += pieces) {
    const double loss = std::accumulate(at, at + pieces, 0.0);
    if (worst.slice < 0 || loss > worst.loss) worst = {(at - losses.begin()) / pieces, loss};
  }
  return worst;
}

}  // namespace lockstep::run

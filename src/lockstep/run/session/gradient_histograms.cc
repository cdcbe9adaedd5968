#include "lockstep/run/session/gradient_histograms.h"

#include <algorithm>

#include "lockstep/base/round.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/model/layout.h"

namespace lockstep::run {

// Of ranks that hold the same gradients, one.
bool GradientHistograms::speaks() const {
  const program::Program& program = session_.plan.program;
  const int copy = program.shards.empty() ? program.ranks.self() : program.ranks.replica;
  return copy == 0 && program.parts.context_rank == 0;
}

void GradientHistograms::count() {
  const size_t blocks = session_.plan.program.blocks.size();
  own_.assign(blocks, base::Histogram());
  if (!speaks()) return;
  kernels::StepState state;
  session_.parameters->read(session_.parameters->state(), &state);
  for (size_t b = 0; b < blocks; ++b) {
    if (session_.plan.program.blocks[b].held()) count_block(b, 1.0F / state.loss_scale);
  }
}

void GradientHistograms::count_block(size_t block, float factor) {
  const program::Program& program = session_.plan.program;
  const int buffer = program.blocks[block].gradients[0];
  const model::BlockLayout layout = model::layout_of(session_.plan.model->blocks[block]);
  const program::Span held = program.held_values(layout, static_cast<int>(block));
  const auto* values = session_.memory->tensor(buffer).as<float>();
  if (program.buffers[static_cast<size_t>(buffer)].sharded) values -= held.begin;
  for (const model::PlacedParam& param : layout.params) {
    if (!param.spec.holds_values() || !param.spec.trained()) continue;
    if (!param.spec.cut.cuts() && program.parts.tensor_rank > 0)
      continue;  // the first tensor rank has the same
    const program::Span own = program::intersect({param.offset, param.spec.shape.numel()}, held);
    if (own.count > 0) count_values(values + own.begin, own.count, factor, own_[block]);
  }
}

// A piece at a time, through the host's memory where the device's is another.
void GradientHistograms::count_values(const float* values, int64_t count, float factor,
                                      base::Histogram& into) {
  constexpr int64_t kPiece = int64_t{1} << 22, kItem = int64_t{1} << 18;
  const bool on_cpu = session_.plan.device->id().kind == device::Kind::cpu;
  std::vector<float> host(on_cpu ? 0 : static_cast<size_t>(std::min(count, kPiece)));
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t piece = std::min(kPiece, count - at);
    const float* from = values + at;
    if (!on_cpu) {
      session_.parameters->read({const_cast<float*>(from), device::DType::f32, {piece}}, host.data());
      from = host.data();
    }
    std::vector<base::Histogram> parts(static_cast<size_t>(base::divide_up(piece, kItem)));
    device::run_items(static_cast<int64_t>(parts.size()), device::thread_count(), [&](int64_t item, int) {
      parts[static_cast<size_t>(item)].add(from + item * kItem, std::min(kItem, piece - item * kItem),
                                           factor);
    });
    for (const base::Histogram& part : parts) into.add(part);
  }
}

std::vector<std::pair<std::string, base::Histogram>> GradientHistograms::sum() {
  const Ranks& ranks = *session_.ranks;
  const auto world = static_cast<size_t>(ranks.size()), self = static_cast<size_t>(ranks.rank());
  std::vector<uint64_t> words;
  std::vector<double> extremes(own_.size() * world * 2, 0);  // [block][rank]: each fills in its own
  for (size_t b = 0; b < own_.size(); ++b) {
    words.insert(words.end(), own_[b].words().begin(), own_[b].words().end());
    extremes[(b * world + self) * 2] = own_[b].smallest();
    extremes[(b * world + self) * 2 + 1] = own_[b].largest();
  }
  std::vector<double> has(own_.size() * world, 0);
  for (size_t b = 0; b < own_.size(); ++b) has[b * world + self] = own_[b].count() > 0 ? 1 : 0;
  words = ranks.sum(std::move(words));
  extremes = ranks.sum(std::move(extremes));
  has = ranks.sum(std::move(has));
  std::vector<std::pair<std::string, base::Histogram>> all;
  for (size_t b = 0; b < own_.size(); ++b) {
    float smallest = 0, largest = 0;
    bool none = true;
    for (size_t r = 0; r < world; ++r) {
      if (has[b * world + r] == 0) continue;
      const auto low = static_cast<float>(extremes[(b * world + r) * 2]);
      const auto high = static_cast<float>(extremes[(b * world + r) * 2 + 1]);
      smallest = none ? low : std::min(smallest, low);
      largest = none ? high : std::max(largest, high);
      none = false;
    }
    const base::Histogram one =
        base::Histogram::of(words.data() + b * base::Histogram::kWords, smallest, largest);
    if (one.count() + one.not_finite() > 0) all.emplace_back(session_.plan.model->blocks[b].name(), one);
  }
  return all;
}

}  // namespace lockstep::run

#include "lockstep/replay/probe.h"

#include <cmath>
#include <limits>

#include "lockstep/base/hash.h"
#include "lockstep/model/layout.h"
#include "lockstep/run/loop/step_inputs.h"

namespace lockstep::replay {

namespace {

using program::Instruction;
using program::Pass;
using program::Role;
using run::Session;

const char* pass_of(const Instruction& i) {
  if (i.runs(Pass::backward_input) || i.runs(Pass::backward_weight)) return "backward";
  return i.runs(Pass::recompute) ? "recompute" : "forward";
}

class Prober {
 public:
  Prober(Session& session, SeenStep& seen) : session_(session), program_(session.plan.program), seen_(seen) {
    for (const model::Block& block : session.plan.model->blocks) {
      SeenBlock one;
      one.name = block.name();
      seen_.blocks.push_back(std::move(one));
    }
  }

  void weights_before() {
    for (const Held& held : weights()) {
      host_.push_back(read(held.values));
      seen_.blocks[held.block].before.add(
          numbers_of(host_.back().data(), held.values.dtype, held.values.numel()));
    }
  }
  void weights_after() {
    size_t at = 0;
    for (const Held& held : weights()) {
      std::vector<char> now = read(held.values);
      SeenBlock& block = seen_.blocks[held.block];
      block.after.add(numbers_of(now.data(), held.values.dtype, held.values.numel()));
      block.update.add(difference(host_[at], now, held.values.dtype));
      host_[at++].clear();
    }
  }
  // Right before the norm, gradients are sums over all slices.
  void gradients() {
    const float scale = state().loss_scale;
    for (size_t b = 0; b < program_.blocks.size(); ++b) {
      if (program_.blocks[b].gradients.empty() || program_.blocks[b].gradients[0] < 0) continue;
      const std::vector<char> all = read(session_.memory->tensor(program_.blocks[b].gradients[0]));
      Numbers& numbers = seen_.blocks[b].gradient;
      const model::BlockLayout layout = model::layout_of(session_.plan.model->blocks[b]);
      for (const model::PlacedParam& param : layout.params) {
        if (!param.spec.holds_values() || param.spec.train.frozen) continue;  // between them is nothing
        const auto* values = reinterpret_cast<const float*>(all.data()) + param.offset;
        numbers.add(numbers_of(values, device::DType::f32, param.spec.shape.numel()));
      }
      numbers.squares /= static_cast<double>(scale) * scale, numbers.largest /= scale;
    }
  }
  void values(const Instruction& i) {
    if (i.block < 0 || i.segment < 0) return;
    const model::Block& block = session_.plan.model->blocks[static_cast<size_t>(i.block)];
    for (const program::Use& use : i.writes) {
      const bool looked_at = use.role == Role::out || use.role == Role::din;
      const device::Tensor values = session_.memory->tensor(use.buffer);
      if (!looked_at || values.data == nullptr || values.numel() == 0) continue;
      const Numbers numbers = numbers_of(read(values).data(), values.dtype, values.numel());
      const auto segment = static_cast<size_t>(i.segment);
      if (use.role == Role::out && !i.runs(Pass::recompute) && segment + 1 == block.segments().size())
        seen_.blocks[static_cast<size_t>(i.block)].out.add(numbers);
      seen_.values.push_back({.pass = pass_of(i),
                              .slice = i.slice,
                              .block = block.name(),
                              .segment = block.segments()[segment]->name(),
                              .value = use.name,
                              .numbers = numbers});
    }
  }
  kernels::StepState state() const {
    kernels::StepState state;
    session_.parameters->read(session_.parameters->state(), &state);
    return state;
  }

 private:
  struct Held {
    size_t block = 0;
    device::Tensor values;
  };
  std::vector<Held> weights() const {
    std::vector<Held> all;
    for (const run::Parameters::Named& one : session_.parameters->named()) {
      if (one.master.values.numel() > 0)
        all.push_back({static_cast<size_t>(one.order) >> 32, one.master.values});
    }
    return all;
  }
  std::vector<char> read(const device::Tensor& values) const {
    std::vector<char> bytes(static_cast<size_t>(values.bytes()));
    session_.parameters->read(values, bytes.data());
    return bytes;
  }
  static Numbers difference(const std::vector<char>& before, const std::vector<char>& after,
                            device::DType type) {
    if (type != device::DType::f32) return {};  // frozen
    const auto* was = reinterpret_cast<const float*>(before.data());
    const auto* is = reinterpret_cast<const float*>(after.data());
    std::vector<float> change(before.size() / sizeof(float));
    for (size_t i = 0; i < change.size(); ++i) change[i] = is[i] - was[i];
    return numbers_of(change.data(), type, static_cast<int64_t>(change.size()));
  }

  Session& session_;
  const program::Program& program_;
  SeenStep& seen_;
  std::vector<std::vector<char>> host_;  // weights before the step, as weights() lists them
};

uint64_t hash_of(const data::Batch& batch) {
  uint64_t hash = base::hash_bytes(std::as_bytes(std::span(batch.inputs)));
  hash = base::hash_combine(hash, base::hash_bytes(std::as_bytes(std::span(batch.labels))));
  return base::hash_combine(hash, base::hash_bytes(std::as_bytes(std::span(batch.documents))));
}

double without_sign_of_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace

SeenStep probe(Session& session, const ProbedStep& step) {
  SeenStep seen;
  seen.step = static_cast<int64_t>(step.inputs.step) + 1;
  seen.batch_hash = hash_of(step.batch);
  const program::Program& program = session.plan.program;
  const bool all = step.look == Look::blocks;
  Prober prober(session, seen);
  if (all) prober.weights_before();
  bool summed = false;
  session.executor->step_slowly(
      step.inputs, run::host_batch(step.batch),
      [&](int n) {
        const bool norm = program.instructions[static_cast<size_t>(n)].is<program::Norm>();
        if (all && norm && !summed) prober.gradients();
        summed = summed || norm;
        return true;
      },
      [&](int n) {
        if (all) prober.values(program.instructions[static_cast<size_t>(n)]);
      });
  if (all) prober.weights_after();
  const kernels::StepState state = prober.state();
  seen.loss = without_sign_of_nan(state.loss);
  seen.grad_norm = without_sign_of_nan(state.grad_norm);
  seen.applied = state.apply != 0;
  seen.params_hash = session.parameters->hash();
  if (!all) seen.blocks.clear();
  return seen;
}

}  // namespace lockstep::replay

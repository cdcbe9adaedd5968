#include "lockstep/run/executor.h"

#include <fmt/format.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/run/bind.h"

namespace lockstep::run {

using device::CopyKind;
using device::Tensor;
using kernels::StepInputs;
using kernels::StepState;

struct Executor::State {
  const model::Model& model;
  const program::Program& program;
  const Memory& memory;
  device::Device& device;
  device::Stream stream = nullptr;
  std::vector<std::function<void()>> calls;  // one for each instruction
  std::unique_ptr<Binder> binder;
  Staging staging;
  Tensor inputs, state, losses;
};

Executor::Executor(const model::Model& model, const program::Program& program, const Memory& memory,
                   device::Device& device, Options options)
    : state_(new State{model, program, memory, device}) {
  State& s = *state_;
  s.stream = device.create_stream();
  s.inputs = memory.find("step inputs");
  s.state = memory.find("step state");
  s.losses = memory.find("slice losses");
  s.staging.allocate(device, program);
  s.binder = std::make_unique<Binder>(BindContext{model, program, memory, device, s.stream, s.staging, std::move(options)});
  for (const program::Instruction& instruction : program.instructions) s.calls.push_back(s.binder->bind(instruction));
}

Executor::~Executor() {
  state_->device.synchronize(state_->stream);
  state_->staging.free(state_->device);
  state_->device.destroy_stream(state_->stream);
}

device::Stream Executor::stream() const { return state_->stream; }

void Executor::step(const StepInputs& inputs, const HostBatch& batch) {
  State& s = *state_;
  s.staging.fill(s.device, batch, inputs);
  s.device.copy(s.inputs.data, s.staging.inputs(), sizeof(StepInputs), CopyKind::host_to_device, s.stream);
  for (const auto& call : s.calls) call();
  s.staging.in_use(s.device, s.stream);
}

void Executor::step_slowly(const StepInputs& inputs, const HostBatch& batch, const std::function<void(int)>& after) {
  State& s = *state_;
  s.staging.fill(s.device, batch, inputs);
  s.device.copy(s.inputs.data, s.staging.inputs(), sizeof(StepInputs), CopyKind::host_to_device, s.stream);
  for (size_t n = 0; n < s.calls.size(); ++n) {
    s.calls[n]();
    s.device.synchronize(s.stream);
    after(static_cast<int>(n));
  }
}

StepState Executor::read_state() {
  StepState result;
  state_->device.copy(&result, state_->state.data, sizeof(result), CopyKind::device_to_host, state_->stream);
  state_->device.synchronize(state_->stream);
  return result;
}

std::vector<double> Executor::read_slice_losses() {
  std::vector<double> result(static_cast<size_t>(state_->losses.numel()));
  state_->device.copy(result.data(), state_->losses.data, state_->losses.bytes(), CopyKind::device_to_host, state_->stream);
  state_->device.synchronize(state_->stream);
  return result;
}

}  // namespace lockstep::run

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
  struct Readback {
    StepState* host = nullptr;  // pinned
    device::Event done = nullptr;
  } readbacks[2];
  int64_t started = 0, read = 0;  // steps
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
  for (State::Readback& readback : s.readbacks) {
    readback = {static_cast<StepState*>(device.allocate_host(sizeof(StepState))), device.create_event()};
  }
  s.binder = std::make_unique<Binder>(BindContext{model, program, memory, device, s.stream, s.staging, std::move(options)});
  for (const program::Instruction& instruction : program.instructions) s.calls.push_back(s.binder->bind(instruction));
}

Executor::~Executor() {
  state_->device.synchronize(state_->stream);
  state_->staging.free(state_->device);
  for (State::Readback& readback : state_->readbacks) {
    state_->device.free_host(readback.host);
    state_->device.destroy_event(readback.done);
  }
  state_->device.destroy_stream(state_->stream);
}

device::Stream Executor::stream() const { return state_->stream; }

void Executor::step(const StepInputs& inputs, const HostBatch& batch) {
  State& s = *state_;
  s.staging.fill(s.device, batch, inputs);
  s.device.copy(s.inputs.data, s.staging.inputs(), sizeof(StepInputs), CopyKind::host_to_device, s.stream);
  for (const auto& call : s.calls) call();
  s.staging.in_use(s.device, s.stream);
  if (!s.program.training) return;
  LS_ASSERT(unread() < 2, "two steps are unread");
  const State::Readback& readback = s.readbacks[s.started++ % 2];
  s.device.copy(readback.host, s.state.data, sizeof(StepState), CopyKind::device_to_host, s.stream);
  s.device.record(readback.done, s.stream);
}

int Executor::unread() const { return static_cast<int>(state_->started - state_->read); }

StepState Executor::read_oldest() {
  LS_ASSERT(unread() > 0);
  const State::Readback& readback = state_->readbacks[state_->read++ % 2];
  state_->device.wait_for(readback.done);
  return *readback.host;
}

void Executor::step_slowly(const StepInputs& inputs, const HostBatch& batch, const std::function<bool(int)>& after) {
  State& s = *state_;
  s.staging.fill(s.device, batch, inputs);
  s.device.copy(s.inputs.data, s.staging.inputs(), sizeof(StepInputs), CopyKind::host_to_device, s.stream);
  for (size_t n = 0; n < s.calls.size(); ++n) {
    s.calls[n]();
    s.device.synchronize(s.stream);
    if (!after(static_cast<int>(n))) return;
  }
}

std::vector<double> Executor::read_slice_losses() {
  std::vector<double> result(static_cast<size_t>(state_->losses.numel()));
  state_->device.copy(result.data(), state_->losses.data, state_->losses.bytes(), CopyKind::device_to_host, state_->stream);
  state_->device.synchronize(state_->stream);
  return result;
}

}  // namespace lockstep::run

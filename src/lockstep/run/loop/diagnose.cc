#include "lockstep/run/loop/diagnose.h"

#include <fmt/format.h>

namespace lockstep::run {

using device::DType;
using device::Tensor;

namespace {

struct Found {
  const program::Instruction* instruction = nullptr;
  std::string value;
  int64_t bad = 0, of = 0;
};

bool is_float(DType type) { return type == DType::f32 || type == DType::bf16 || type == DType::f16; }

const char* direction(const program::Instruction& i) {
  const bool back = i.runs(program::Pass::backward_input) || i.runs(program::Pass::backward_weight);
  return back ? "in the backward pass" : "in the forward pass";
}

int64_t count_bad(Session& session, const Tensor& values, int64_t* counter) {
  const kernels::Kernels& kernels = kernels::kernels_for(session.plan.device->id().kind);
  kernels.count_nonfinite({values.dtype, values.numel(), values.data, counter},
                          {.stream = session.executor->stream()});
  int64_t bad = 0;
  session.plan.device->copy(&bad, counter, sizeof(bad), device::CopyKind::device_to_host,
                            session.executor->stream());
  session.plan.device->synchronize(session.executor->stream());
  return bad;
}

}  // namespace

// Stages receive early, while they still send: instruction by instruction, they would wait for each other for
// ever.
bool can_step_slowly(const Session& session) { return session.plan.layout.stages.count == 1; }

std::string diagnose(Session& session, const kernels::StepInputs& inputs, const HostBatch& batch,
                     int64_t step) {
  if (!can_step_slowly(session)) {
    return fmt::format(
        "`lockstep replay RUN --step {}` finds the block, which is not looked for on pipeline ranks", step);
  }
  Found found;
  const program::Program& program = session.plan.program;
  auto* counter = static_cast<int64_t*>(session.plan.device->allocate(sizeof(int64_t)));
  // Every rank goes through its whole list, because each takes part in the others' gathers.
  const auto wanted = [&](int n) {
    return program::can_repeat(program.instructions[static_cast<size_t>(n)].what);
  };
  session.executor->step_slowly(inputs, batch, wanted, [&](int n) {
    const program::Instruction& i = program.instructions[static_cast<size_t>(n)];
    const bool segment = i.block >= 0 && i.segment >= 0;
    if (found.instruction != nullptr) return;
    for (const program::Use& use : i.writes) {
      const Tensor values = session.memory->tensor(use.buffer);
      const bool looked_at = use.role == program::Role::out || use.role == program::Role::din;
      if (!segment || !looked_at || !is_float(values.dtype)) continue;
      if (const int64_t bad = count_bad(session, values, counter); bad > 0) {
        found = {&i, use.name, bad, values.numel()};
        return;
      }
    }
  });
  session.plan.device->free(counter);
  if (found.instruction == nullptr) return "rerunning the step did not reproduce it";
  const auto& block = session.plan.model->blocks[static_cast<size_t>(found.instruction->block)];
  return fmt::format("first in slice {}, block {} ({}), {}: {} of {} values of {}", found.instruction->slice,
                     block.name(), block.segments()[static_cast<size_t>(found.instruction->segment)]->name(),
                     direction(*found.instruction), found.bad, found.of, found.value);
}

}  // namespace lockstep::run

#include "lockstep/run/loop/step_inputs.h"

#include "lockstep/optim/schedule.h"

namespace lockstep::run {

HostBatch host_batch(const data::Batch& batch) {
  return {batch.inputs, batch.labels, batch.documents, batch.references};
}

data::LoaderOptions loader_options(const Session& session, int64_t first_step) {
  const Plan& plan = session.plan;
  const recipe::Recipe& r = plan.recipe();
  return {.seed = static_cast<uint64_t>(r.run.seed),
          .global = r.batch.global,
          .slices = r.batch.slices.value,
          .own_slices = plan.program.own_slices,
          .seq_len = r.data.seq_len,
          .first_step = first_step,
          .prefetch = r.data.prefetch,
          .workers = r.data.workers,
          .references = &session.references};
}

kernels::StepInputs step_inputs(const Plan& plan, const data::Batch& batch, int64_t step) {
  return {.seed = static_cast<uint64_t>(plan.recipe().run.seed),
          .step = static_cast<uint64_t>(step),
          .learning_rate = static_cast<float>(optim::learning_rate(plan.recipe(), step)),
          .valid_tokens = plan.counts_batch() ? static_cast<double>(batch.valid_labels) : 0.0};
}

}  // namespace lockstep::run

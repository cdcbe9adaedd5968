#include "lockstep/run/evaluate.h"

#include <algorithm>

#include "lockstep/data/loader.h"

namespace lockstep::run {

namespace {

program::Program compile_eval(const Plan& plan) {
  program::Layout layout = plan.layout;
  layout.slices = layout.strands = 1;
  layout.training = false;
  return program::compile(*plan.model, layout);
}

}  // namespace

Evaluator::Evaluator(Session& session)
    : session_(session), program_(compile_eval(session.plan)),
      memory_(std::make_unique<Memory>(*session.plan.device, program_, session.memory.get())),
      executor_(std::make_unique<Executor>(*session.plan.model, program_, *memory_, *session.plan.device,
                                           Executor::Options{.optimizer = session.plan.optimizer, .tf32 = session.plan.recipe().precision.tf32, .slice_ids = {}})) {}

double Evaluator::run(int64_t batches) {
  const Plan& plan = session_.plan;
  const int64_t count = plan.layout.slice.samples;
  const int64_t there = (plan.dataset->samples(data::Split::eval) + count - 1) / count;
  double loss = 0, valid = 0;
  for (int64_t k = 0; k < std::min(batches, there); ++k) {
    const data::Batch batch = data::read_eval_batch(*plan.dataset, k, count, plan.recipe().data.seq_len);
    executor_->step({.valid_tokens = 1}, {batch.inputs, batch.labels});
    loss += executor_->read_slice_losses()[0];
    valid += static_cast<double>(batch.valid_labels);
  }
  return valid > 0 ? loss / valid : 0;
}

}  // namespace lockstep::run

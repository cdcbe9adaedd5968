#include "lockstep/run/loop/evaluate.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/round.h"
#include "lockstep/data/loader.h"

namespace lockstep::run {

namespace {

program::Program compile_eval(const Plan& plan) {
  program::Layout layout = plan.layout;
  layout.slices = layout.strands = 1;
  layout.training = false;
  return program::compile(*plan.model, layout);
}

constexpr int64_t kBatchesBetweenQuestions = 8;

}  // namespace

// Of any rank. Collective.
bool Evaluator::asked_to_stop(const std::atomic<int>& stop) const {
  return session_.ranks->sum(std::vector<double>{stop.load() != 0 ? 1.0 : 0.0})[0] > 0;
}

Evaluator::Evaluator(Session& session)
    : session_(session),
      program_(compile_eval(session.plan)),
      memory_(std::make_unique<Memory>(*session.plan.device, program_, session.memory.get())),
      executor_(std::make_unique<Executor>(*session.plan.model, program_, *memory_, *session.plan.device,
                                           executor_options(session))) {}

std::optional<double> Evaluator::run(int64_t batches, const std::atomic<int>* stop) {
  const Plan& plan = session_.plan;
  const int64_t count = plan.recipe().batch.global / plan.recipe().batch.slices.value;
  const int64_t there = std::min(batches, base::divide_up(plan.dataset->samples(data::Split::eval), count));
  // Data ranks take turns, and those that share one slice work on it together. All go through as many
  // batches, because each takes part in the others' gathers; one past the last has no label that counts.
  // Every number comes from one rank, and all are added in the batches' order.
  const int64_t ranks = plan.layout.ranks.width(), self = plan.layout.ranks.self();
  const auto pieces = static_cast<size_t>(program_.losses());
  std::vector<double> valid(static_cast<size_t>(base::round_up(there, ranks)), 0);
  std::vector<double> losses(valid.size() * pieces, 0);
  for (int64_t k = self; k < static_cast<int64_t>(valid.size()); k += ranks) {
    if (stop != nullptr && k / ranks % kBatchesBetweenQuestions == 0 && asked_to_stop(*stop))
      return std::nullopt;
    const data::Batch batch =
        data::read_eval_batch(*plan.dataset, k, count, plan.recipe().data.seq_len, &session_.references);
    executor_->step({.valid_tokens = 1}, {batch.inputs, batch.labels, batch.documents, batch.references});
    if (k >= there) continue;
    const std::vector<double> of_batch = executor_->read_losses();
    std::copy(of_batch.begin(), of_batch.end(), losses.begin() + k * static_cast<ptrdiff_t>(pieces));
    if (plan.counts_batch()) valid[static_cast<size_t>(k)] = static_cast<double>(batch.valid_labels);
  }
  losses = session_.ranks->sum(std::move(losses));
  valid = session_.ranks->sum(std::move(valid));
  const double loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  const double labels = std::accumulate(valid.begin(), valid.end(), 0.0);
  return labels > 0 ? loss / labels : 0;
}

// As run() goes: data ranks take turns, each number comes from one rank.
std::optional<std::vector<double>> Evaluator::sequences(data::Split split,
                                                        const std::function<bool(int64_t)>& go_on) {
  const Plan& plan = session_.plan;
  const int64_t count = plan.recipe().batch.global / plan.recipe().batch.slices.value;
  const int64_t samples = plan.dataset->samples(split), batches = base::divide_up(samples, count);
  const int64_t ranks = plan.layout.ranks.width(), self = plan.layout.ranks.self();
  std::vector<double> sums(static_cast<size_t>(base::round_up(batches, ranks) * count), 0);
  for (int64_t k = self; k < base::round_up(batches, ranks); k += ranks) {
    if (k / ranks % kBatchesBetweenQuestions == 0 && !go_on(std::min(samples, k * count)))
      return std::nullopt;
    const data::Batch batch = data::read_in_order(
        *plan.dataset, {.split = split, .batch = k, .count = count, .seq_len = plan.recipe().data.seq_len});
    executor_->step({.valid_tokens = 1}, {batch.inputs, batch.labels, batch.documents, batch.references});
    const std::vector<double> of_batch = executor_->read_sequences();
    std::copy(of_batch.begin(), of_batch.end(), sums.begin() + static_cast<std::ptrdiff_t>(k * count));
  }
  if (!sums.empty()) sums = session_.ranks->sum(std::move(sums));
  sums.resize(static_cast<size_t>(samples));
  return sums;
}

}  // namespace lockstep::run

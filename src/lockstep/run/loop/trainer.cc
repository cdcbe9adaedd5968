#include "lockstep/run/loop/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/run/loop/diagnose.h"
#include "lockstep/run/loop/evaluate.h"
#include "lockstep/run/loop/fingerprint.h"
#include "lockstep/run/loop/preference.h"
#include "lockstep/run/loop/references.h"
#include "lockstep/run/loop/spike.h"
#include "lockstep/run/loop/step_inputs.h"
#include "lockstep/run/saving/memory_snapshot.h"
#include "lockstep/run/session/gradient_histograms.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::run {

namespace {

using kernels::StepInputs;
using kernels::StepState;

// Summed over ranks beside how many of them were asked to stop, which is a whole number below kEndRequest:
// the first rank's requests to save and to profile are fractions.
constexpr double kEndRequest = 1 << 24, kSaveRequest = 1.0 / 1024;
constexpr double kProfileRequest = kSaveRequest / 1024;  // for each step
constexpr int64_t kMostRequestedSteps = 1000;

// Which sign an invalid operation gives its NaN is the processor's whim, and "-nan" reads like a value.
double without_sign_of_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

class Trainer {
 public:
  Trainer(Session& session, const TrainOptions& options, Observer& observer)
      : session_(session),
        plan_(session.plan),
        recipe_(session.plan.recipe()),
        options_(options),
        observer_(observer),
        loader_(*plan_.dataset, loader_options(session, options.first_step)),
        evaluator_(session),
        histograms_(session) {}

  Summary run() {
    began_ = base::monotonic_ns();
    saved_at_ = options_.clock_ns();
    session_.parameters->read(session_.parameters->state(), &before_);
    int64_t step = options_.first_step;
    enter(watch::Phase::train, step);
    while (step < last_step() && !stopping()) {
      if (!profile_tried_ && step + 1 >= options_.profile.first && step + 1 <= options_.profile.last)
        profile_tried_ = true, start_profile({step + 1, options_.profile.last});
      if (requested_steps_ > 0 && !profiling_)
        start_profile({step + 1, step + requested_steps_, Asked::meanwhile});
      one_step(step++);
      if (profiling_ && step == profiled_.last) stop_profile();
      if (due(recipe_.log.fingerprint_every, step)) compare(step);
      if (options_.snapshots != nullptr && options_.snapshots->due(step)) snapshot(step);
      if (due(recipe_.log.eval_every, step) && step < recipe_.run.steps) evaluate(step);
      if (options_.save && (due(options_.save_every, step) || wants_save_)) save(step);
    }
    return finish(step);
  }

 private:
  int64_t last_step() const {
    return options_.last_step > 0 ? std::min(options_.last_step, recipe_.run.steps) : recipe_.run.steps;
  }
  static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }
  // Ranks stop at the same boundary: behind a step in which any of them was asked to.
  bool stopping() const {
    return stopping_ || options_.save_only || (session_.ranks->alone() && (signalled() || wants_end()));
  }
  bool signalled() const { return options_.stop_signal != nullptr && options_.stop_signal->load() != 0; }
  bool wants_end() const { return options_.wants_end && options_.wants_end(); }

  // By the first rank's clock, and so that training stands still for less than 1 % of the time.
  bool time_to_save() const {
    if (!options_.save || options_.save_seconds <= 0 || !session_.ranks->first()) return false;
    const double passed = static_cast<double>(options_.clock_ns() - saved_at_) / 1e9;
    return passed >= std::max(options_.save_seconds, 100 * save_pause_);
  }

  // Of the first rank: to save, and to profile some steps because somebody asks for it. Told once, heard by
  // all when the step is read.
  double requests() {
    double all = time_to_save() ? kSaveRequest : 0.0;
    const bool listens = session_.ranks->first() && options_.profile.requested && !profiling_;
    if (!listens || request_pending_) return all;
    const int64_t steps = std::clamp<int64_t>(options_.profile.requested(), 0, kMostRequestedSteps);
    request_pending_ = steps > 0;
    return all + static_cast<double>(steps) * kProfileRequest;
  }

  void take_requests(double stop) {
    const double fraction = stop - std::floor(stop);
    stopping_ = stopping_ || stop >= 1;
    by_request_ = by_request_ || stop >= kEndRequest;
    wants_save_ = wants_save_ || fraction >= kSaveRequest;
    const double steps = (fraction - (fraction >= kSaveRequest ? kSaveRequest : 0)) / kProfileRequest;
    if (steps >= 1 && !profiling_) requested_steps_ = std::llround(steps);
  }

  void enter(watch::Phase phase, int64_t step) {
    if (options_.recorder != nullptr) options_.recorder->enter(phase, step);
  }

  // Whether the line of this step says what the weights are behind it.
  bool hashes(int64_t step) const {
    return recipe_.log.fingerprint ||
           (recipe_.log.chain && step % std::max<int64_t>(1, recipe_.log.every) == 0);
  }

  // One step, top to bottom: data, the program, and what the step before it gave.
  void one_step(int64_t step) {
    const std::shared_ptr<const data::Batch> batch = loader_.next();
    if (step == options_.first_step) base::end_lap(plan_.laps, "wait for the first batch");
    StepInputs inputs = step_inputs(plan_, *batch, step);
    inputs.stop = signalled() ? 1.0 : wants_end() ? kEndRequest : requests();
    const bool counts = due(recipe_.log.histograms, step + 1);
    session_.executor->step(inputs, host_batch(*batch),
                            counts ? std::function<void()>([this] { histograms_.count(); }) : nullptr);
    if (counts) {
      for (const auto& [block, histogram] : histograms_.sum())
        observer_.histogram(step + 1, block, histogram);
    }
    if (step == options_.first_step) base::end_lap(plan_.laps, "enqueue the first step");
    waiting_.push_back({inputs, loader_.waited_ms(), batch});
    // The log-probabilities of pairs are where the next step puts its own.
    const bool now = step == options_.first_step || plan_.device->id().kind == device::Kind::cpu ||
                     hashes(step + 1) || plan_.model->pairs;
    while (session_.executor->unread() > (now ? 0 : 1)) read_one();
  }

  // Once.
  void tell_of_graph(int64_t step) {
    if (graph_told_ || session_.executor->graph_refusal().empty()) return;
    graph_told_ = true;
    observer_.event("no_graph",
                    "steps are launched call by call, not as one CUDA graph, and may be slower: " +
                        session_.executor->graph_refusal(),
                    step);
  }

  struct Waiting {
    StepInputs inputs;
    double data_wait_ms;
    std::shared_ptr<const data::Batch> batch;
  };

  void read_one() {
    const StepState state = session_.executor->read_oldest();
    const Waiting done = std::move(waiting_.front());
    waiting_.pop_front();
    StepReport report;
    report.step = static_cast<int64_t>(done.inputs.step) + 1;
    report.unit = plan_.unit();
    report.loss = without_sign_of_nan(state.loss);
    report.learning_rate = done.inputs.learning_rate;
    report.grad_norm = without_sign_of_nan(state.grad_norm);
    report.tokens = report.step * plan_.units_per_step();
    report.step_ms = session_.executor->last_step_ms();
    report.tokens_per_s = static_cast<double>(plan_.units_per_step()) / (report.step_ms / 1e3);
    report.data_wait_ms = done.data_wait_ms;
    report.memory_gib = fullest_gib(report.step == options_.first_step + 1);
    report.applied = state.apply != 0;
    report.loss_scale = state.loss_scale;
    tell_of_graph(report.step);
    report.mfu = utilization(report.tokens_per_s);
    if (plan_.model->pairs)
      report.preference = preference_of(session_, session_.executor->read_sequences(), done.inputs.step);
    if (hashes(report.step)) report.params_hash = session_.parameters->hash();
    skipped_ = state.skipped;
    step_seconds_ = report.step_ms / 1000;
    // Every rank reads the same number of the same step.
    take_requests(state.stop);
    if (report.step == options_.first_step + 1) {
      base::end_lap(plan_.laps, "wait for its end");
      observer_.event("first_step",
                      fmt::format("{:.3f} s after the process started", base::seconds_since_process_start()),
                      report.step);
    }
    observer_.stepped(report);
    recent_.push_back(report.loss);
    if (static_cast<int64_t>(recent_.size()) > std::max<int64_t>(1, recipe_.run.steps / 10))
      recent_.pop_front();
    if (!report.applied || !std::isfinite(report.loss)) not_finite(report, done);
    if (spikes_.jumps(report.loss)) jumped(report, done);
    before_ = state;
  }

  // Of the rank that has most; the others' are asked for once, behind the first step, which takes all that
  // any step will take.
  double fullest_gib(bool first) {
    const double own = static_cast<double>(plan_.device->peak_allocated_bytes()) / (1 << 30);
    if (first) {
      std::vector<double> of_ranks(static_cast<size_t>(session_.ranks->size()));
      of_ranks[static_cast<size_t>(session_.ranks->rank())] = own;
      of_ranks = session_.ranks->sum(std::move(of_ranks));
      others_gib_ = *std::max_element(of_ranks.begin(), of_ranks.end());
    }
    return std::max(own, others_gib_);
  }

  // Every rank reads the same loss, so that all of them look for the slice.
  void jumped(const StepReport& report, const Waiting& done) {
    const SliceLoss worst = worst_slice(session_, done.inputs, host_batch(*done.batch));
    observer_.event(
        "loss_spike",
        fmt::format("step {}: the loss jumped to {:.4g} from about {:.4g}; slice {} has the highest",
                    report.step, report.loss, spikes_.usual(), worst.slice),
        report.step);
  }

  // fp16 lives with overflowing gradients: its scaler backs off, until nothing is left to back off from.
  // Anything else is the recipe's choice.
  void not_finite(const StepReport& report, const Waiting& done) {
    const bool overflow = plan_.optimizer.policy.dynamic_scale && std::isfinite(report.loss);
    if (overflow && report.loss_scale >= 1) return;
    const std::string where = diagnose(session_, done.inputs, host_batch(*done.batch));
    const std::string what = fmt::format("step {}: {} is not finite{}; {}", report.step,
                                         std::isfinite(report.loss) ? "the gradient" : "the loss",
                                         overflow ? ", even without a loss scale" : "", where);
    observer_.event("nonfinite", what, report.step);
    if (recipe_.run.nonfinite == "skip") return;
    const std::string kept = keep_what_was_before(report);
    throw NonfiniteError(
        601, what + ". " + (report.applied ? "" : "The update was not applied. ") + kept +
                 "Lower optim.lr, check the data of that step, or set run.nonfinite=skip to skip such steps");
  }

  // Updates stop at the first one that is not finite, those of steps under way too
  // (kernels/optimizer/step_state.h), so that weights and moments are those from before it. All ranks are
  // here.
  std::string keep_what_was_before(const StepReport& report) {
    if (!options_.save) return "";
    const int64_t step = report.applied ? report.step : report.step - 1;
    int64_t applied = before_.applied;
    while (session_.executor->unread() > 0) applied = session_.executor->read_oldest().applied;
    waiting_.clear();
    const bool moved =
        !report.applied && applied != before_.applied;  // fp16 with a scale that went on falling
    const bool nothing_new = step == saved_ || (step == options_.first_step && !options_.unsaved);
    if (moved || nothing_new) return "";
    if (!report.applied) session_.parameters->write(session_.parameters->state(), &before_);
    enter(watch::Phase::save, step);
    options_.save(step);
    saved_ = step;
    return fmt::format("The state before it was saved as the checkpoint of step {}. ", step);
  }

  std::optional<double> utilization(double tokens_per_s) const {
    const device::Properties p = plan_.device->properties();
    const double peak = plan_.model->compute == device::DType::f32 ? p.peak_flops_fp32 : p.peak_flops_bf16;
    if (peak <= 0 || !plan_.model->predicts_tokens) return std::nullopt;
    // Products of a tensor rank are parts of the whole.
    const double of_model =
        plan_.model->flops_per_token(recipe_.data.seq_len) * static_cast<double>(plan_.model->parts.tensor);
    return of_model * tokens_per_s / (peak * session_.ranks->size());
  }

  void drain() {
    while (session_.executor->unread() > 0) read_one();
  }

  using Asked = TrainOptions::Asked;
  struct ProfiledSteps {
    int64_t first = 0, last = 0;
    Asked asked = Asked::before;
  };

  void start_profile(const ProfiledSteps& steps) {
    drain();
    profiled_ = steps;
    requested_steps_ = 0;
    const std::string why_not = session_.executor->start_profile();
    profiling_ = why_not.empty();
    if (profiling_) return;
    request_pending_ = false;
    observer_.event("no_profile", why_not, steps.first);
  }

  void stop_profile() {
    drain();
    profiling_ = false, request_pending_ = false;
    Profile profile = session_.executor->stop_profile();
    profile.first_step = profiled_.first;
    // Its table measures what the device can do at best, in memory that no step of the run takes.
    const int64_t peak = plan_.device->peak_allocated_bytes();
    options_.profile.made(profile, profiled_.asked);
    plan_.device->forget_peak_above(peak);
    session_.executor->restart_clock();
  }

  // Nothing: the run was asked to stop meanwhile.
  std::optional<double> evaluate(int64_t step) {
    drain();
    enter(watch::Phase::evaluate, step);
    std::optional<double> loss = evaluator_.run(recipe_.log.eval_batches, options_.stop_signal);
    if (loss) {
      loss = without_sign_of_nan(*loss);
      observer_.evaluated(step, *loss);
    } else {
      stopping_ = true;
    }
    go_on(step);
    return loss;
  }

  void save(int64_t step) {
    if (recipe_.log.fingerprint_every > 0) compare(step);  // a flipped bit must not reach the disk
    drain();
    enter(watch::Phase::save, step);
    const int64_t began = options_.clock_ns();
    options_.save(step);
    saved_ = step, saved_at_ = options_.clock_ns(), wants_save_ = false;
    save_pause_ = static_cast<double>(saved_at_ - began) / 1e9;
    go_on(step);
  }

  void snapshot(int64_t step) {
    if (recipe_.log.fingerprint_every > 0) compare(step);
    drain();
    options_.snapshots->take(step, step_seconds_);
    session_.executor->restart_clock();
  }

  void go_on(int64_t step) {
    enter(watch::Phase::train, step);
    session_.executor->restart_clock();
  }

  void compare(int64_t step) {
    if (compared_ == step) return;
    drain();
    compared_ = step;
    const std::string difference = compare_copies(session_, step);
    session_.executor->restart_clock();
    if (difference.empty()) return;
    observer_.event("diverged", difference, step);
    throw DivergedError(
        602,
        difference +
            ". The run returns to the state before; if it happens again, take that machine out of service");
  }

  Summary finish(int64_t step) {
    drain();
    if (profiling_) stop_profile();  // the run ended inside
    if (options_.profile.last > 0 && !profile_tried_) {
      observer_.event(
          "no_profile",
          fmt::format("nothing was profiled: steps {} to {} were requested, but {} to {} were run",
                      options_.profile.first, options_.profile.last, options_.first_step + 1, step),
          step);
    }
    Summary summary;
    summary.steps = step;
    summary.finished = step >= recipe_.run.steps;
    summary.by_request =
        !summary.finished && (by_request_ || (session_.ranks->alone() && !signalled() && wants_end()));
    summary.seconds = static_cast<double>(base::monotonic_ns() - began_) / 1e9;
    summary.tokens_per_s =
        static_cast<double>((step - options_.first_step) * plan_.units_per_step()) / summary.seconds;
    summary.averaged = static_cast<int64_t>(recent_.size());
    if (!recent_.empty()) summary.last_loss = recent_.back();
    for (const double loss : recent_) summary.loss += loss / static_cast<double>(recent_.size());
    summary.floor = plan_.dataset->entropy_floor();
    summary.skipped = skipped_;
    summary.sources = plan_.dataset->sources(step * recipe_.batch.global);
    // Before the last evaluation, which may take long and must not put the last steps at risk.
    if (options_.save && saved_ != step && (step > options_.first_step || options_.unsaved)) save(step);
    const bool evaluates = summary.finished && options_.last_step == 0;
    if (evaluates && plan_.dataset->samples(data::Split::eval) > 0) summary.eval_loss = evaluate(step);
    enter(watch::Phase::end, step);
    summary.params_hash = session_.parameters->hash();
    return summary;
  }

  Session& session_;
  const Plan& plan_;
  const recipe::Recipe& recipe_;
  const TrainOptions& options_;
  Observer& observer_;
  data::Loader loader_;
  Evaluator evaluator_;
  GradientHistograms histograms_;
  std::deque<Waiting> waiting_;
  std::deque<double> recent_;
  SpikeWatch spikes_;
  double step_seconds_ = 0;
  double others_gib_ = 0;
  int64_t began_ = 0, saved_ = -1, skipped_ = 0, compared_ = -1;
  int64_t saved_at_ = 0;   // on the clock; the beginning counts as a save
  double save_pause_ = 0;  // seconds that training stood still for the last one
  StepState before_{};     // behind the last step that was read
  bool wants_save_ = false, stopping_ = false, by_request_ = false, profiling_ = false,
       profile_tried_ = false, graph_told_ = false;
  ProfiledSteps profiled_;        // while profiling_
  bool request_pending_ = false;  // this rank has sent a request to profile that is not fulfilled
  int64_t requested_steps_ = 0;   // to profile as soon as possible
};

}  // namespace

Summary train(Session& session, const TrainOptions& options, Observer& observer) {
  // A run that nobody has given its reference is its own, as long as nothing is trained.
  if (session.plan.model->pairs && session.references.empty() && options.first_step == 0 &&
      !options.save_only)
    session.references = find_references(session, {}).value();
  return Trainer(session, options, observer).run();
}

}  // namespace lockstep::run

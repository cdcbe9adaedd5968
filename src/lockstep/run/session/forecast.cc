#include "lockstep/run/session/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/mesh.h"
#include "lockstep/plan/price.h"
#include "lockstep/recipe/mix.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/rank_layout.h"

namespace lockstep::run {

namespace {

constexpr double kHostWatts = 1.35;  // a node's fans, processors and network, as a factor of its devices'
constexpr double kSecondsOfHour = 3600;

int64_t available_on(const plan::Place& place, const recipe::Recipe& recipe) {
  const auto limit = static_cast<int64_t>(recipe.memory.limit_gib * (1 << 30));
  return limit > 0 ? std::min(limit, place.model.memory_bytes) : place.model.memory_bytes;
}

std::string layout_words(const recipe::Recipe& recipe, const plan::Compiled& compiled, const Plan& plan) {
  const recipe::Recipe::Parallel& p = recipe.parallel;
  plan::Layout layout;
  layout.tensor = static_cast<int>(p.tensor), layout.context = static_cast<int>(p.context);
  layout.pipeline = static_cast<int>(p.pipeline);
  layout.data = compiled.world.ranks() / (layout.tensor * layout.context * layout.pipeline);
  layout.zero = layout.data > 1 ? plan.layout.ranks.zero : 0;
  layout.shard = plan.layout.ranks.sharded() && plan.layout.ranks.replicas > 1 ? plan.layout.ranks.shard : 0;
  layout.sequence = p.sequence && layout.tensor > 1;
  layout.form = layout.context > 1 ? p.context_form : "ring";
  layout.schedule = layout.pipeline > 1 ? p.schedule : "1f1b";
  layout.chunks = plan.layout.stages.chunks;
  return layout.words();
}

// Of the fullest rank of each pipeline stage.
std::vector<int64_t> stage_bytes(const Plan& plan, const plan::Compiled& compiled) {
  std::vector<int64_t> stages(static_cast<size_t>(plan.layout.stages.count), 0);
  const comm::Mesh mesh = mesh_of(plan.layout.ranks, plan.model->parts, plan.layout.stages);
  for (int rank = 0; rank < compiled.world.ranks(); ++rank) {
    const auto list = static_cast<size_t>(compiled.world.program_of[static_cast<size_t>(rank)]);
    int64_t& stage = stages[static_cast<size_t>(comm::coordinate_of(mesh, rank)[comm::Axis::pipeline])];
    stage = std::max(stage, compiled.peaks[list]);
  }
  return stages;
}

// What a rank saves goes to its host's memory first; the disk is written beside training.
double save_seconds(const plan::Compiled& compiled, const plan::Machine& machine) {
  double bytes = 0;
  for (const plan::MemoryPart& part : compiled.memory) {
    if (part.name == "master weights" || part.name == "optimizer") bytes += static_cast<double>(part.bytes);
  }
  return machine.host_bytes_per_second > 0 ? bytes / machine.host_bytes_per_second : 0;
}

// `whole`: the model as one rank would hold it, from which utilization and parameters are counted.
void add_totals(Forecast& f, const Plan& whole, const plan::Machine& machine, int ranks) {
  const recipe::Recipe& recipe = whole.recipe();
  f.unit = whole.unit();
  f.parameters = whole.model->param_count();
  for (const program::BufferKind kind : {program::BufferKind::master, program::BufferKind::optimizer}) {
    const auto found = whole.memory.persistent_by_kind.find(kind);
    if (found != whole.memory.persistent_by_kind.end()) f.checkpoint_bytes += found->second;
  }
  f.checkpoint_bytes += whole.memory.host_bytes;  // moments that are kept there
  const bool fp32 = whole.model->compute == device::DType::f32;
  const double of_fp32 =
      recipe.precision.tf32 && machine.flops_tf32 > 0 ? machine.flops_tf32 : machine.flops_fp32;
  const double peak = (fp32 ? of_fp32 : machine.flops_half) * ranks;
  if (whole.model->predicts_tokens)
    f.mfu = whole.model->flops_per_token(recipe.data.seq_len) * f.units_per_second() / peak;
  f.steps = recipe.run.steps;
  f.save_steps = recipe.checkpoint.every, f.save_minutes = recipe.checkpoint.minutes;
  const int64_t before_last = std::max<int64_t>(0, f.steps - 1), every = recipe.log.eval_every;
  if (f.evaluation_seconds > 0) f.evaluations = 1 + (every > 0 ? before_last / every : 0);
  f.watts = ranks * machine.watts * kHostWatts;
  f.take_step(f.step_seconds);
  f.error = machine.error;
}

}  // namespace

double Forecast::part(const std::string& name) const {
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const plan::TimePart& p) { return p.name == name; });
  return found == parts.end() ? 0 : found->seconds;
}

// One at the end, whatever comes before.
double Forecast::saves() const {
  const int64_t before_last = std::max<int64_t>(0, steps - 1);
  if (save_steps > 0) return 1 + static_cast<double>(before_last / save_steps);
  const double every = save_minutes * 60;
  return 1 + (every > 0 ? std::floor(static_cast<double>(before_last) * step_seconds / every) : 0);
}

double Forecast::save_hours() const { return saves() * save_seconds / kSecondsOfHour; }

void Forecast::take_step(double seconds) {
  step_seconds = seconds;
  hours = (static_cast<double>(steps) * step_seconds + saves() * save_seconds +
           static_cast<double>(evaluations) * evaluation_seconds) /
          kSecondsOfHour;
  kwh = hours * watts / 1000;
}

device::Absent absent_of(const plan::DeviceRow& device, const plan::Machine& model) {
  device::Properties p{.name = device.title,
                       .memory_bytes = model.memory_bytes,
                       .free_bytes = model.memory_bytes,
                       .peak_flops_bf16 = model.flops_half,
                       .peak_flops_fp32 = model.flops_fp32};
  const bool nvidia = device.maker == "nvidia";
  p.fast_bf16 = device.maker != "cpu" && (!nvidia || device.capability >= 8.0);
  p.fast_fp16 = device.maker != "cpu";
  p.fp8 = model.flops_fp8 > 0;
  if (nvidia) p.instruction_set = fmt::format("sm_{:.0f}", device.capability * 10);
  return {device.maker == "cpu" ? device::Kind::cpu : device::Kind::cuda, p};
}

PlanOptions options_for(const plan::Place& place) {
  PlanOptions options{.must_fit = false, .reads_data = false, .exists = false};
  options.device = absent_of(*place.device, place.model);
  options.seat.world = place.ranks;
  options.seat.local_world = std::min(place.ranks, place.model.ranks_per_node);
  options.seat.nodes = place.nodes;
  options.shares_memory = options.node_shares_memory = options.device->kind == device::Kind::cpu;
  options.shares_memory = options.shares_memory && place.nodes == 1;
  options.per_node = place.nodes == 1 ? 0 : place.model.ranks_per_node;
  return options;
}

namespace {

plan::Walk walk_on(const plan::Machine& machine, const plan::World& world) {
  plan::Walk walk =
      plan::simulate(world, plan::price_on(machine, world), {.apart = plan::apart_on(machine, world)});
  LS_ASSERT(walk.problems.empty(), base::join(walk.problems, "; "));
  return walk;
}

// The programs of a step and of an evaluation's turn.
struct Compiled {
  plan::Compiled step, evaluation;
};

// As run/loop/evaluate.h goes: a slice at a time, forward alone, and data ranks take turns.
Compiled compile_both(const Plan& plan) {
  OtherStep evaluation{.layout = plan.layout};
  evaluation.layout.slices = evaluation.layout.strands = 1;
  evaluation.layout.training = false;
  return {compile_ranks(plan, Sizes::exact), compile_ranks(plan, evaluation, Sizes::first)};
}

double evaluation_seconds(const Plan& plan, const plan::Compiled& turn, int64_t slices,
                          const plan::Machine& machine) {
  const int64_t turns = base::divide_up(slices, plan.layout.ranks.width());
  return turns > 0 ? static_cast<double>(turns) * walk_on(machine, turn.world).step_seconds : 0;
}

// By the recipe, for its data may not be here.
bool holds_out(const recipe::Recipe::Data& data) {
  if (data.eval_fraction > 0 || !data.eval_path.empty()) return true;
  if (data.mix.empty()) return false;
  const std::vector<recipe::MixSource> sources = recipe::read_mix(data.mix);
  return std::any_of(sources.begin(), sources.end(),
                     [](const recipe::MixSource& source) { return !source.eval.empty(); });
}

// `evaluated`: slices of one evaluation; 0 where no data is held out.
Forecast walk_step(const Plan& plan, const Compiled& both, int64_t evaluated, plan::Machine machine) {
  const plan::Compiled& compiled = both.step;
  machine.tf32 = plan.recipe().precision.tf32;
  const plan::Walk walk = walk_on(machine, compiled.world);
  return {.layout = layout_words(plan.recipe(), compiled, plan),
          .precision = plan.recipe().precision.compute,
          .recompute = plan.recipe().memory.recompute,
          .step_seconds = walk.step_seconds,
          .parts = plan::time_parts(compiled.world, walk, machine),
          .verbs = plan::verb_parts(compiled.world, walk),
          .save_seconds = save_seconds(compiled, machine),
          .evaluation_seconds = evaluation_seconds(plan, both.evaluation, evaluated, machine),
          .memory = compiled.memory,
          .stage_bytes = stage_bytes(plan, compiled),
          .peak_bytes = compiled.peak_bytes,
          .available_bytes = plan.available_bytes,
          .units_per_step = static_cast<double>(plan.units_per_step())};
}

}  // namespace

namespace {

// All that a forecast needs but the machine.
struct Step {
  Plan plan, whole;
  Compiled compiled;
};

std::shared_ptr<const Step> step_of(const recipe::Resolved& resolved, const plan::Place& place, bool proves) {
  PlanOptions options = options_for(place);
  options.proves = proves;
  Plan plan = make_plan(resolved, {}, options);
  Compiled compiled = compile_both(plan);
  PlanOptions alone = options;
  alone.seat = {};
  return std::make_shared<const Step>(
      Step{std::move(plan), whole_plan(resolved, {}, alone), std::move(compiled)});
}

std::shared_ptr<const Step> known_step(const recipe::Resolved& resolved, const plan::Place& place,
                                       Known& known) {
  const auto& p = resolved.recipe.parallel;
  const std::string key = fmt::format(
      "step of {}: {} {} {} {} {} {} {} {} {} {} {}", Known::key(resolved, options_for(place)),
      p.data.is_auto ? 0 : p.data.value, p.zero, p.shard.is_auto ? 0 : p.shard.value, p.tensor, p.sequence,
      p.context, p.context_form, p.pipeline, p.schedule, p.chunks, resolved.recipe.memory.recompute);
  if (auto found = known.find<Step>(key)) return found;
  auto step = step_of(resolved, place, false);  // it is one of many
  int64_t instructions = 0;
  for (const auto& program : step->compiled.step.programs)
    instructions += static_cast<int64_t>(program->instructions.size());
  known.keep(key, step, instructions);
  return step;
}

}  // namespace

Forecast forecast(const recipe::Resolved& resolved, const plan::Place& place, Known* known) {
  const auto step = known != nullptr ? known_step(resolved, place, *known) : step_of(resolved, place, true);
  // How much is held out is not known before the data is read.
  const bool evaluates =
      holds_out(resolved.recipe.data) || step->plan.dataset->samples(data::Split::eval) > 0;
  const int64_t evaluated = evaluates ? resolved.recipe.log.eval_batches : 0;
  Forecast f = walk_step(step->plan, step->compiled, evaluated, place.model);
  f.available_bytes = available_on(place, step->plan.recipe());
  add_totals(f, step->whole, place.model, place.ranks);
  return f;
}

Here this_place(const Plan& plan) {
  const int ranks_here = plan.seat.local_world;
  if (const plan::DeviceRow* row = plan::catalogue().find_device("this")) {
    const bool same = row->title == plan.device->properties().name && !row->is_of_another_build();
    if (same) return {plan::shared_by(row->model, plan.device->id().kind, ranks_here), true};
  }
  return {plan::this_machine(plan.device->id().kind, plan.device->properties(), ranks_here), false};
}

Forecast forecast_here(const Plan& plan, const Here& here) {
  const recipe::Recipe::Batch& batch = plan.recipe().batch;
  const int64_t held_out =
      base::divide_up(plan.dataset->samples(data::Split::eval), batch.global / batch.slices.value);
  Forecast f =
      walk_step(plan, compile_both(plan), std::min(plan.recipe().log.eval_batches, held_out), here.machine);
  add_totals(f, plan, here.machine, plan.seat.world);
  return f;
}

plan::Choice layouts_on(const recipe::Resolved& resolved, const plan::Place& place, bool all, int times) {
  return search_layouts(resolved,
                        {.machine = place.model,
                         .available_bytes = available_on(place, resolved.recipe),
                         .all = all,
                         .work = times * plan::Question().work},
                        options_for(place));
}

std::vector<MenuRow> remedies_on(const recipe::Resolved& resolved, const plan::Place& place) {
  const Plan plan = make_plan(resolved, {}, options_for(place));
  return remedy_menu(plan, available_on(place, plan.recipe()), place.model);
}

plan::Candidate simple_layout(const recipe::Resolved& resolved, const plan::Place& place, Known* known) {
  return search_layouts(resolved,
                        {.machine = place.model,
                         .available_bytes = available_on(place, resolved.recipe),
                         .all = true,
                         .simple = true,
                         .known = known},
                        options_for(place))
      .best;
}

Bottleneck bottleneck_of(const Forecast& f, const recipe::Recipe& recipe, const plan::Place& place) {
  if (f.parts.empty() || f.step_seconds <= 0) return {};
  const plan::TimePart& first = f.parts.front();
  Bottleneck found{.part = first.name, .share = first.seconds / f.step_seconds};
  const auto without = [&](double seconds) { return base::human_duration(f.step_seconds - seconds); };
  const plan::Machine& m = place.model;
  if (first.name == "products" && m.flops_fp8 > 0 && recipe.precision.compute != "fp8") {
    const double gain = first.seconds * (1 - m.flops_half * m.reached / (m.flops_fp8 * m.reached_fp8));
    found.remedy = fmt::format("precision.compute=fp8 would bring the step near {}", without(0.75 * gain));
  } else if (first.name == "products" || first.name == "fp8 products") {
    found.remedy = "only a faster device or fewer FLOPs (memory.recompute=none where it fits) would help";
  } else if (first.name == "attention") {
    found.remedy = "shorter sequences or a sliding window would help";
  } else if (first.name == "exposed data communication") {
    found.remedy = fmt::format(
        "more samples per rank and step (batch.global), parallel.shard={} or a faster network; without it {}",
        m.ranks_per_node, without(first.seconds));
  } else if (first.name == "exposed tensor communication") {
    found.remedy = fmt::format("a smaller parallel.tensor would help; without it {}", without(first.seconds));
  } else if (first.name == "pipeline bubble") {
    found.remedy =
        fmt::format("more batch.slices, parallel.schedule=interleaved or fewer stages; without it {}",
                    without(first.seconds));
  } else if (first.name == "update") {
    found.remedy = "parallel.zero=1 shares it out over data ranks; a larger batch makes it rarer";
  } else {
    found.remedy = "memory bandwidth limits it: larger slices do not help, a device with faster memory would";
  }
  return found;
}

}  // namespace lockstep::run

#include "lockstep/run/session/session.h"

#include <algorithm>

#include "lockstep/base/environment.h"
#include "lockstep/model/modules/module_file.h"
#include "lockstep/plan/world.h"
#include "lockstep/run/session/adapter.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/session/memory_report.h"
#include "lockstep/run/session/rank_layout.h"
#include "lockstep/run/session/recipe_checks.h"

namespace lockstep::run {

namespace {

std::string instruction_title(const Plan& plan, int32_t n) {
  const std::vector<program::Instruction>& all = plan.program.instructions;
  if (n < 0 || static_cast<size_t>(n) >= all.size()) return "";
  return program::title(plan.program, *plan.model, all[static_cast<size_t>(n)]);
}

bool has_links(const program::Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const program::Instruction& i) { return plan::sends(i); });
}

}  // namespace

Session::Session(Plan from, Ranks* given, base::RingWriter* recorder)
    : plan(std::move(from)),
      ranks(given),
      ring(recorder),
      alone_(given == nullptr ? std::make_unique<Ranks>() : nullptr) {
  if (ranks == nullptr) ranks = alone_.get();
  check_engine(plan.recipe(), !ranks->alone() && plan.device->id().kind == device::Kind::cpu);
  const bool shared = ranks->node_shares_memory() && plan.device->id().kind == device::Kind::cpu;
  if (shared) plan.device->allocate_from(&ranks->world()->arena());
  try {
    memory = std::make_unique<Memory>(*plan.device, plan.program);
  } catch (const device::OutOfMemory& refused) {
    throw_out_of_memory(plan, refused.free_bytes);
  }
  if (shared) plan.device->allocate_from(nullptr);
  base::end_lap(plan.laps, "allocate memory");
  if (!ranks->alone())
    ranks->connect(mesh_of(plan.layout.ranks, plan.model->parts, plan.layout.stages), plan.program,
                   *plan.device);
  if (!ranks->alone() && plan.device->id().kind == device::Kind::cuda) {
    marks_ = std::make_unique<comm::DeviceMarks>(*plan.device);
    watch_ = std::make_unique<comm::CallWatch>(
        comm::CallWatch::Options{.groups = ranks->groups(),
                                 .marks = marks_.get(),
                                 .timeout = ranks->world()->timeout(),
                                 .title = [this](int32_t n) { return instruction_title(plan, n); }});
  }
  if (ring != nullptr || marks_) ranks->record_in(ring, marks_.get());
  base::end_lap(plan.laps, "connect the ranks");
  parameters = std::make_unique<Parameters>(*plan.model, plan.program, *memory, *plan.device, *ranks);
  parameters->initialize(static_cast<uint64_t>(plan.recipe().run.seed), plan.optimizer.initial_loss_scale);
  const recipe::Recipe& recipe = plan.recipe();
  if (!recipe.model.from.empty() && !model::is_module_file(recipe.model.from)) {
    weights_from = load_weights(*parameters, *plan.device, *ranks, recipe.model.family, recipe.model.from,
                                under_adapter(recipe));
  }
  if (!recipe.tune.adapter.empty() && recipe.tune.method == "lora")
    adapter_from = load_adapter(*parameters, *plan.device, *ranks, *plan.model, recipe.tune.adapter);
  base::end_lap(plan.laps, "set the first weights");
  executor =
      std::make_unique<Executor>(*plan.model, plan.program, *memory, *plan.device, executor_options(*this));
  base::end_lap(plan.laps, "bind the step's calls");
  if (plan.device->id().kind == device::Kind::cuda && has_links(plan.program)) {
    executor->rehearse();
    base::end_lap(plan.laps, "load the kernels");
  }
}

bool Session::saves_adapter() const {
  return plan.recipe().tune.method == "lora" && !plan.recipe().model.from.empty();
}

Executor::Options executor_options(const Session& session) {
  const std::string requested = base::environment("LOCKSTEP_GRAPH").value_or("");
  return {.optimizer = session.plan.optimizer,
          .tf32 = session.plan.recipe().precision.tf32,
          .ranks = session.ranks,
          .ring = session.ring,
          .watch = session.watch(),
          .graph = requested != "off" && session.plan.model->can_be_captured(),
          .graph_of_lanes = requested == "all"};
}

Session::~Session() {
  executor.reset();
  if (marks_) ranks->record_in(nullptr);  // they go before the device does
}

watch::RecordedNames recorded_names(const Session& session) {
  watch::RecordedNames names{.instructions = {}, .lanes = {}, .groups = session.ranks->recorded()};
  for (const program::Instruction& i : session.plan.program.instructions) {
    std::string text = program::title(session.plan.program, *session.plan.model, i);
    if (const size_t among = text.find(" among "); among != std::string::npos) text.resize(among);
    names.instructions.push_back(std::move(text));
    names.lanes.push_back(program::name_of(i.lane));
  }
  return names;
}

}  // namespace lockstep::run

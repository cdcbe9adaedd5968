#include "lockstep/run/choose_layout.h"

#include "lockstep/base/schema.h"
#include "lockstep/plan/choose.h"
#include "lockstep/plan/list_key.h"

namespace lockstep::run {

namespace {

plan::Compiled compile_ranks(const Plan& plan) {
  const comm::Mesh mesh = mesh_of(plan.layout.ranks, plan.model->parts, plan.layout.stages);
  const plan::Lists lists = plan::lists_of(mesh, plan.layout.ranks, plan.layout.strands);
  plan::Compiled compiled{.programs = {}, .world = plan::world_of(mesh)};
  compiled.world.program_of = lists.of;
  for (const int rank : lists.first) {
    program::MemoryPlan memory;
    auto program = std::make_unique<program::Program>(compile_for_rank(plan, rank, memory));
    program::order(*program);
    compiled.peak_bytes = std::max(compiled.peak_bytes, memory.peak_bytes());
    compiled.world.programs.push_back(program.get());
    compiled.programs.push_back(std::move(program));
  }
  return compiled;
}

// What the user has settled is not up for choice.
std::optional<int> settled(const base::Resolved& resolved, const std::string& key, int value) {
  const auto origin = resolved.origin.find(key);
  if (origin == resolved.origin.end() || origin->second == "default" || origin->second == "auto")
    return std::nullopt;
  return value;
}

}  // namespace

std::string choose_layout(base::Resolved& resolved, const PlanOptions& options) {
  auto& parallel = resolved.recipe.parallel;
  if (!parallel.automatic) return "";
  parallel.automatic = false;
  PlanOptions look = options;
  look.must_fit = false;
  look.seat.rank = 0;
  // The machine and its memory, from one rank's plan.
  base::Resolved one = resolved;
  one.recipe.parallel.tensor = one.recipe.parallel.context = one.recipe.parallel.pipeline = 1;
  PlanOptions alone = look;
  alone.seat.world = 1;
  const Plan here = make_plan(one, {}, alone);
  const plan::Question question{
      .ranks = options.seat.world,
      .available_bytes = here.available_bytes,
      .machine =
          plan::this_machine(here.device->id().kind, here.device->properties(), options.seat.local_world),
      .recompute = resolved.recipe.memory.recompute,
      .tensor = settled(resolved, "parallel.tensor", static_cast<int>(parallel.tensor)),
      .context = settled(resolved, "parallel.context", static_cast<int>(parallel.context)),
      .pipeline = settled(resolved, "parallel.pipeline", static_cast<int>(parallel.pipeline)),
      .zero = std::nullopt};
  const plan::Choice choice = plan::choose(question, [&](const plan::Candidate& candidate) {
    base::Resolved tried = resolved;
    for (const std::string& word : candidate.overrides()) {
      const size_t equals = word.find('=');
      base::set_value(tried.recipe, word.substr(0, equals), word.substr(equals + 1));
    }
    return compile_ranks(make_plan(std::move(tried), {}, look));
  });
  for (const std::string& word : choice.best.overrides()) {
    const size_t equals = word.find('=');
    base::set_value(resolved.recipe, word.substr(0, equals), word.substr(equals + 1));
    resolved.origin[word.substr(0, equals)] = "auto";
  }
  return choice.why();
}

void check_ranks(const Plan& plan) {
  const plan::Compiled compiled = compile_ranks(plan);
  plan::check_world(compiled.world, {.links_by_direction = true});
}

}  // namespace lockstep::run

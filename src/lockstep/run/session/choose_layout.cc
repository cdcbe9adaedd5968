#include "lockstep/run/session/choose_layout.h"

#include <algorithm>
#include <map>

#include "lockstep/comm/mesh.h"
#include "lockstep/plan/choose.h"
#include "lockstep/plan/list_key.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/session/rank_layout.h"

namespace lockstep::run {

namespace {

constexpr size_t kAsked = 4;

// Of all ranks with this list, the few that may need most: those with the largest shares, which are all that
// differs in size.
std::vector<int> fullest(const program::Program& program, const comm::Mesh& mesh, const plan::Lists& lists,
                         int list) {
  if (program.shards.empty()) return {lists.first[static_cast<size_t>(list)]};
  std::map<int, int> rank_of;  // one for each share
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (lists.of[static_cast<size_t>(rank)] == list)
      rank_of.try_emplace(comm::coordinate_of(mesh, rank)[comm::Axis::shard], rank);
  }
  std::vector<std::pair<int64_t, int>> by_size;
  for (const auto& [seat, rank] : rank_of) {
    int64_t elements = 0;
    for (size_t b = 0; b < program.blocks.size(); ++b) {
      if (!program.blocks[b].held()) continue;
      const program::Shard& shard = program.shards[b][static_cast<size_t>(seat)];
      elements += 3 * shard.values.count;  // master and moments
      if (program.ranks.zero == 3) elements += shard.frozen.count;
      if (program.ranks.round_robin()) elements += shard.gradient_count;
    }
    by_size.emplace_back(-elements, rank);
  }
  const size_t asked = std::min(kAsked, by_size.size());
  std::partial_sort(by_size.begin(), by_size.begin() + static_cast<ptrdiff_t>(asked), by_size.end());
  std::vector<int> ranks;
  for (size_t k = 0; k < asked; ++k) ranks.push_back(by_size[k].second);
  return ranks;
}

// `sizes`: what the fullest rank needs is asked too.
plan::Compiled compile_ranks(const Plan& plan, bool sizes) {
  const comm::Mesh mesh = mesh_of(plan.layout.ranks, plan.model->parts, plan.layout.stages);
  const plan::Lists lists = plan::lists_of(mesh, plan.layout.ranks, plan.layout.strands);
  plan::Compiled compiled{.programs = {}, .world = plan::world_of(mesh)};
  compiled.world.program_of = lists.of;
  for (size_t k = 0; k < lists.first.size(); ++k) {
    program::MemoryPlan memory;
    auto program = std::make_unique<program::Program>(compile_for_rank(plan, lists.first[k], memory));
    compiled.peak_bytes = std::max(compiled.peak_bytes, memory.peak_bytes());
    for (const int rank : sizes ? fullest(*program, mesh, lists, static_cast<int>(k)) : std::vector<int>{}) {
      if (rank == lists.first[k]) continue;
      compile_for_rank(plan, rank, memory);
      compiled.peak_bytes = std::max(compiled.peak_bytes, memory.peak_bytes());
    }
    program::order(*program);
    compiled.world.programs.push_back(program.get());
    compiled.programs.push_back(std::move(program));
  }
  return compiled;
}

// What the user has settled is not up for choice.
template <class T>
std::optional<T> settled(const recipe::Resolved& resolved, const std::string& key, T value) {
  const auto origin = resolved.origin.find(key);
  if (origin == resolved.origin.end() || origin->second == "default" || origin->second == "auto")
    return std::nullopt;
  return value;
}

}  // namespace

std::string choose_layout(recipe::Resolved& resolved, const PlanOptions& options, const Own& own) {
  auto& parallel = resolved.recipe.parallel;
  if (!parallel.automatic) return "";
  parallel.automatic = false;
  PlanOptions look = options;
  look.must_fit = false;
  look.seat.rank = 0;
  // The machine and its memory, from one rank's plan: of one sample, for all of them would be a long list.
  recipe::Resolved one = resolved;
  plan::take_layout_off(one.recipe);
  one.recipe.batch.global = 1;
  one.recipe.batch.slices = one.recipe.batch.strands = 1;
  PlanOptions alone = look;
  alone.seat.world = 1;
  const Plan here = make_plan(one, own, alone);
  const plan::Question question{
      .ranks = options.seat.world,
      .available_bytes = here.available_bytes,
      .machine =
          plan::this_machine(here.device->id().kind, here.device->properties(), options.seat.local_world),
      .recompute = resolved.recipe.memory.recompute,
      .tensor = settled(resolved, "parallel.tensor", static_cast<int>(parallel.tensor)),
      .context = settled(resolved, "parallel.context", static_cast<int>(parallel.context)),
      .pipeline = settled(resolved, "parallel.pipeline", static_cast<int>(parallel.pipeline)),
      .zero = settled(resolved, "parallel.zero", zero_stage(parallel.zero)),
      .shard = settled(resolved, "parallel.shard", static_cast<int>(parallel.shard.value)),
      .chunks = settled(resolved, "parallel.chunks", static_cast<int>(parallel.chunks)),
      .form = settled(resolved, "parallel.context_form", parallel.context_form),
      .schedule = settled(resolved, "parallel.schedule", parallel.schedule),
      .sequence = settled(resolved, "parallel.sequence", parallel.sequence)};
  const plan::Choice choice = plan::choose(question, [&](const plan::Candidate& candidate) {
    recipe::Resolved tried = resolved;
    for (const std::string& word : candidate.overrides()) {
      const size_t equals = word.find('=');
      recipe::set_value(tried.recipe, word.substr(0, equals), word.substr(equals + 1));
    }
    return compile_ranks(make_plan(std::move(tried), own, look), true);
  });
  for (const std::string& word : choice.best.overrides()) {
    const size_t equals = word.find('=');
    recipe::set_value(resolved.recipe, word.substr(0, equals), word.substr(equals + 1));
    resolved.origin[word.substr(0, equals)] = "auto";
  }
  return choice.why();
}

int64_t fullest_rank_bytes(const Plan& plan) { return compile_ranks(plan, true).peak_bytes; }

size_t check_ranks(const Plan& plan) {
  const plan::Compiled compiled = compile_ranks(plan, false);
  plan::check_world(compiled.world, {.links_by_direction = true});
  return compiled.programs.size();
}

}  // namespace lockstep::run

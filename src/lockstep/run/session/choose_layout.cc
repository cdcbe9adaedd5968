#include "lockstep/run/session/choose_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "lockstep/base/beside.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/mesh.h"
#include "lockstep/plan/choose.h"
#include "lockstep/plan/list_key.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/session/rank_layout.h"

namespace lockstep::run {

namespace {

// Ranks with the largest shards that are compiled: one more where two are about as large.
constexpr size_t kAsked = 4;
constexpr int64_t kAboutAsMuch = 1 << 20;  // elements
// With more ranks there are so many layouts that none of them is made to fit by trying what is "auto".
constexpr int kShrinkRanks = 64;

// What a rank holds for itself, in elements, which is all that differs in size between ranks with one list.
int64_t own_elements(const program::Program& program, int seat) {
  int64_t elements = 0;
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    if (!program.blocks[b].held()) continue;
    const program::Shard& shard = program.shards[b][static_cast<size_t>(seat)];
    elements += 3 * shard.values.count;  // master and moments
    if (program.ranks.zero == 3) elements += shard.frozen.span.count;
    if (program.ranks.round_robin()) elements += shard.gradient_count;
  }
  return elements;
}

// Ranks of a list by what they hold, the most first; one for each share.
struct Holding {
  int64_t elements = 0;
  int rank = 0;
};
std::vector<Holding> by_holding(const program::Program& program, const comm::Mesh& mesh,
                                const plan::Lists& lists, int list) {
  if (program.shards.empty()) return {{0, lists.first[static_cast<size_t>(list)]}};
  std::map<int, int> rank_of;  // one for each share
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (lists.of[static_cast<size_t>(rank)] == list)
      rank_of.try_emplace(comm::coordinate_of(mesh, rank)[comm::Axis::shard], rank);
  }
  std::vector<Holding> all;
  for (const auto& [seat, rank] : rank_of) all.push_back({own_elements(program, seat), rank});
  std::stable_sort(all.begin(), all.end(),
                   [](const Holding& a, const Holding& b) { return a.elements > b.elements; });
  return all;
}

// The few that may need most.
std::vector<int> fullest(const std::vector<Holding>& all, int64_t shards) {
  std::vector<int> ranks;
  for (size_t k = 0; k < std::min(kAsked, all.size()); ++k) {
    if (k > 0 && all[0].elements - all[k].elements > kAboutAsMuch / shards) break;
    ranks.push_back(all[k].rank);
  }
  return ranks;
}

// And, where each of the tensor ranks keeps what an update rule needs of the parameters that it owns, their
// neighbours with the same list.
std::vector<int> with_owners(std::vector<int> ranks, const program::Program& program, const comm::Mesh& mesh,
                             const plan::Lists& lists) {
  const bool owns = std::any_of(program.instructions.begin(), program.instructions.end(),
                                [](const program::Instruction& i) { return i.is<program::ToOwners>(); });
  if (!owns) return ranks;
  std::vector<int> all;
  for (const int rank : ranks) {
    comm::Coordinate at = comm::coordinate_of(mesh, rank);
    for (int tensor = 0; tensor < program.parts.tensor; ++tensor) {
      at.at[static_cast<int>(comm::Axis::tensor)] = tensor;
      const int other = comm::rank_of(mesh, at);
      if (lists.of[static_cast<size_t>(other)] == lists.of[static_cast<size_t>(rank)]) all.push_back(other);
    }
  }
  return all;
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

namespace {

// One list, ready to be walked, and what its ranks need.
struct OneList {
  std::unique_ptr<program::Program> program;
  int first = 0;  // its first rank
  int64_t peak_bytes = 0;
  int64_t more = 0;  // of these bytes, what the fullest rank about needs beyond those that were compiled
  std::vector<plan::MemoryPart> memory;
  std::vector<int> fullest;  // ranks that may need most
  bool exact = false;        // all of these were compiled
};

// Of the rank that was planned for, the program is there already.
program::Program program_of(const Plan& plan, const OtherStep* step, int rank, program::MemoryPlan& memory) {
  if (step != nullptr) return compile_for_rank(plan, *step, rank, memory);
  if (rank != plan.seat.rank) return compile_for_rank(plan, rank, memory);
  memory = plan.memory;
  return plan.program;
}

struct ListQuestion {
  const Plan& plan;
  const OtherStep* step;  // null: the plan's own
  const comm::Mesh& mesh;
  const plan::Lists& lists;
  Sizes sizes;
};

void look_at(OneList& list, const program::Program& program, const program::MemoryPlan& memory) {
  if (memory.peak_bytes() <= list.peak_bytes) return;
  list.peak_bytes = memory.peak_bytes();
  list.memory = plan::memory_parts(program, memory);
}

// Of its first rank; the fullest needs about `more` bytes more.
OneList compile_list(const ListQuestion& q, size_t k) {
  const int first = q.lists.first[k];
  OneList made{.first = first};
  program::MemoryPlan memory;
  made.program = std::make_unique<program::Program>(program_of(q.plan, q.step, first, memory));
  look_at(made, *made.program, memory);
  if (q.sizes == Sizes::first) return made;
  const std::vector<Holding> all = by_holding(*made.program, q.mesh, q.lists, static_cast<int>(k));
  constexpr int64_t kBytes = 4;  // of an element of what shares hold
  const auto own = std::find_if(all.begin(), all.end(), [&](const Holding& h) { return h.rank == first; });
  if (own != all.end()) made.more = kBytes * (all[0].elements - own->elements);
  if (q.sizes == Sizes::exact) {
    const std::vector<int> ranks = fullest(all, made.program->ranks.shard);
    made.fullest = with_owners(ranks, *made.program, q.mesh, q.lists);
  }
  return made;
}

// Of many ranks only those lists are looked at exactly that may be the fullest: of the others what is about
// right will do.
constexpr int kFewRanks = 64;
constexpr double kAbout = 0.99;

OneList& most_of(std::vector<OneList>& all) {
  return *std::ranges::max_element(all, {}, &OneList::peak_bytes);
}

// Compiles the ranks that may need most of each.
void look_exactly(const ListQuestion& q, const std::vector<OneList*>& lists) {
  std::vector<std::pair<OneList*, int>> ranks;
  for (OneList* list : lists) {
    list->peak_bytes -= std::exchange(list->more, 0);
    list->exact = true;
    for (const int rank : list->fullest) {
      if (rank != list->first) ranks.emplace_back(list, rank);
    }
  }
  std::mutex mutex;
  base::for_each_beside(ranks.size(), [&](size_t n) {
    program::MemoryPlan memory;
    const program::Program program = program_of(q.plan, q.step, ranks[n].second, memory);
    const std::lock_guard lock(mutex);
    look_at(*ranks[n].first, program, memory);
  });
}

plan::Compiled compile_all(const Plan& plan, const OtherStep* step, Sizes sizes) {
  const program::Layout& layout = step != nullptr ? step->layout : plan.layout;
  const comm::Mesh mesh = mesh_of(layout.ranks, plan.model->parts, layout.stages);
  const plan::Lists lists = plan::lists_of(mesh, layout.ranks, layout.strands);
  const ListQuestion question{plan, step, mesh, lists, sizes};
  std::vector<OneList> made(lists.first.size());
  base::for_each_beside(made.size(), [&](size_t k) { made[k] = compile_list(question, k); });
  for (OneList& list : made) list.peak_bytes += list.more;
  if (sizes == Sizes::exact) {
    const double about =
        mesh.world() > kFewRanks ? kAbout * static_cast<double>(most_of(made).peak_bytes) : 0;
    std::vector<OneList*> fullest;
    for (OneList& list : made) {
      if (static_cast<double>(list.peak_bytes) >= about) fullest.push_back(&list);
    }
    look_exactly(question, fullest);
    while (!most_of(made).exact) look_exactly(question, {&most_of(made)});  // an estimate came out on top
  }
  base::for_each_beside(made.size(), [&](size_t k) { program::order(*made[k].program); });
  plan::Compiled compiled{.programs = {}, .world = plan::world_of(mesh)};
  compiled.world.program_of = lists.of;
  for (OneList& one : made) {
    if (one.peak_bytes > compiled.peak_bytes)
      compiled.peak_bytes = one.peak_bytes, compiled.memory = std::move(one.memory);
    compiled.peaks.push_back(one.peak_bytes);
    compiled.world.programs.push_back(one.program.get());
    compiled.programs.push_back(std::move(one.program));
  }
  return compiled;
}

}  // namespace

plan::Compiled compile_ranks(const Plan& plan, Sizes sizes) { return compile_all(plan, nullptr, sizes); }

plan::Compiled compile_ranks(const Plan& plan, const OtherStep& step, Sizes sizes) {
  return compile_all(plan, &step, sizes);
}

std::string Known::key(const recipe::Resolved& resolved, const PlanOptions& options) {
  const device::Properties& p = options.device->properties;
  std::string key = fmt::format(
      "{} ranks, {} here, {} per node, kind {}{}{}{}", options.seat.world, options.seat.local_world,
      options.per_node, static_cast<int>(options.device->kind), p.fast_bf16 ? ", bf16" : "",
      p.fast_fp16 ? ", fp16" : "", p.fp8 && resolved.recipe.precision.compute == "fp8" ? ", fp8" : "");
  // "auto" is settled by the device's memory and speed.
  if (resolved.recipe.batch.slices.is_auto || resolved.recipe.memory.recompute == "auto")
    key += fmt::format(", {} with {} bytes", p.name, p.memory_bytes);
  return key;
}

void Known::keep(const std::string& key, std::shared_ptr<const void> what, int64_t instructions) {
  constexpr int64_t kMost = 2'000'000;  // half a gigabyte, or so
  const std::lock_guard lock(mutex_);
  if (instructions_ + instructions > kMost) return;
  if (kept_.insert_or_assign(key, std::move(what)).second) instructions_ += instructions;
}

namespace {

// The programs are the shared one's, which it keeps alive.
plan::Compiled view_of(const std::shared_ptr<const plan::Compiled>& shared) {
  return {.programs = {},
          .world = shared->world,
          .peak_bytes = shared->peak_bytes,
          .peaks = shared->peaks,
          .memory = shared->memory,
          .kept = shared};
}

}  // namespace

namespace {

// What all ranks of a model hold together, however they share it.
struct Held {
  int64_t state = 0, weights = 0;  // masters and moments; what products read
};

Held held_by(const Plan& whole) {
  Held held;
  for (const auto& [kind, bytes] : whole.memory.persistent_by_kind) {
    using Kind = program::BufferKind;
    if (kind == Kind::master || kind == Kind::optimizer) held.state += bytes;
    if (kind == Kind::compute || kind == Kind::frozen || kind == Kind::quantized) held.weights += bytes;
  }
  return held;
}

// The mean over tensor ranks and stages; the fullest rank has no less.
int64_t least_bytes(const Held& held, const plan::Layout& layout, std::optional<int> shard) {
  const int64_t parts = int64_t{layout.tensor} * layout.pipeline;
  const bool named = shard && *shard > 0;  // else all data ranks
  const int64_t shares = named ? std::min(*shard, layout.data) : layout.data;
  return held.state / (parts * (layout.zero >= 1 ? shares : 1)) +
         held.weights / (parts * (layout.zero == 3 ? shares : 1));
}

}  // namespace

Plan whole_plan(recipe::Resolved resolved, const Own& own, PlanOptions options) {
  plan::take_layout_off(resolved.recipe);
  resolved.recipe.parallel.automatic = false;
  resolved.recipe.batch.global = 1;
  resolved.recipe.batch.slices = resolved.recipe.batch.strands = 1;
  options.must_fit = options.proves = false;
  options.seat.rank = 0;
  options.seat.world = 1;
  options.per_node = 0;
  return make_plan(std::move(resolved), own, options);
}

plan::Choice search_layouts(const recipe::Resolved& resolved, const Search& search,
                            const PlanOptions& options, const Own& own) {
  const auto& parallel = resolved.recipe.parallel;
  plan::Question question{.ranks = options.seat.world,
                          .available_bytes = search.available_bytes,
                          .machine = search.machine,
                          .recompute = resolved.recipe.memory.recompute,
                          .work = search.work,
                          .beside = options.device.has_value(),  // nothing is opened
                          .simple = search.simple};
  question.machine.tf32 = resolved.recipe.precision.tf32;
  const auto& optim = resolved.recipe.optim;
  if (optim.offload || optim.moments == "bf16") std::erase(question.less_state, "optim.moments=bf16");
  if (optim.offload) std::erase(question.less_state, "optim.offload=true");
  if (!search.all) {
    question.tensor = settled(resolved, "parallel.tensor", static_cast<int>(parallel.tensor));
    question.context = settled(resolved, "parallel.context", static_cast<int>(parallel.context));
    question.pipeline = settled(resolved, "parallel.pipeline", static_cast<int>(parallel.pipeline));
    question.zero = settled(resolved, "parallel.zero", zero_stage(parallel.zero));
    if (!parallel.shard.is_auto)  // a user may write "auto" out, too
      question.shard = settled(resolved, "parallel.shard", static_cast<int>(parallel.shard.value));
    question.chunks = settled(resolved, "parallel.chunks", static_cast<int>(parallel.chunks));
    question.form = settled(resolved, "parallel.context_form", parallel.context_form);
    question.schedule = settled(resolved, "parallel.schedule", parallel.schedule);
    question.sequence = settled(resolved, "parallel.sequence", parallel.sequence);
  }
  PlanOptions look = options;
  look.must_fit = look.proves = false;
  look.seat.rank = 0;
  look.may_shrink = question.ranks <= kShrinkRanks && !search.simple;
  // A recipe that is impossible on one rank may be possible on others.
  try {
    const Plan whole = whole_plan(resolved, own, options);
    if (whole.device->id().kind == device::Kind::cpu) std::erase(question.less_state, "optim.offload=true");
    question.least_bytes = [held = held_by(whole), shard = question.shard](const plan::Candidate& candidate) {
      return least_bytes(held, candidate.layout, shard);
    };
  } catch (const base::ConfigError&) {
  }
  return plan::choose(question, [&](const plan::Candidate& candidate) {
    recipe::Resolved tried = resolved;
    tried.recipe.parallel.automatic = false;
    for (const std::string& word : candidate.overrides()) {
      const size_t equals = word.find('=');
      recipe::set_value(tried.recipe, word.substr(0, equals), word.substr(equals + 1));
    }
    const std::string key = search.known != nullptr ? fmt::format("{}: {}", Known::key(tried, look),
                                                                  base::join(candidate.overrides(), " "))
                                                    : "";
    if (search.known != nullptr) {
      const auto known = search.known->find<plan::Compiled>(key);
      // Where one rank alone was too much, the others were not compiled.
      const bool whole = known && !known->world.programs.empty();
      if (whole || (known && known->peak_bytes > question.available_bytes)) return view_of(known);
    }
    const Plan plan = make_plan(std::move(tried), own, look);
    const bool fits = plan.memory.peak_bytes() <= question.available_bytes;
    plan::Compiled compiled =
        fits ? compile_ranks(plan, Sizes::estimated)
             : plan::Compiled{
                   .programs = {}, .world = {}, .peak_bytes = plan.memory.peak_bytes()};  // at least
    if (search.known == nullptr) return compiled;
    int64_t instructions = 0;
    for (const auto& program : compiled.programs)
      instructions += static_cast<int64_t>(program->instructions.size());
    const auto shared = std::make_shared<const plan::Compiled>(std::move(compiled));
    search.known->keep(key, shared, instructions);
    return view_of(shared);
  });
}

void take_layout(recipe::Resolved& resolved, const plan::Candidate& candidate) {
  resolved.recipe.parallel.automatic = false;
  for (const std::string& word : candidate.overrides()) {
    const size_t equals = word.find('=');
    recipe::set_value(resolved.recipe, word.substr(0, equals), word.substr(equals + 1));
    resolved.origin[word.substr(0, equals)] = "auto";
  }
}

std::string choose_layout(recipe::Resolved& resolved, const PlanOptions& options, const Own& own) {
  if (!resolved.recipe.parallel.automatic) return "";
  // The machine and its memory, from one rank's plan: of one sample, for all of them would be a long list.
  const Plan here = whole_plan(resolved, own, options);
  const Search search{.machine = plan::this_machine(here.device->id().kind, here.device->properties(),
                                                    options.seat.local_world),
                      .available_bytes = here.available_bytes};
  const plan::Choice choice = search_layouts(resolved, search, options, own);
  take_layout(resolved, choice.best);
  return choice.why();
}

int64_t fullest_rank_bytes(const Plan& plan) { return compile_ranks(plan, Sizes::exact).peak_bytes; }

size_t check_ranks(const Plan& plan) {
  const plan::Compiled compiled = compile_ranks(plan, Sizes::first);
  plan::check_world(compiled.world, {.links_by_direction = true});
  return compiled.programs.size();
}

}  // namespace lockstep::run

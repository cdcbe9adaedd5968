#include "lockstep/run/session/session.h"
#include "lockstep/run/session/param_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/kind.h"
#include "lockstep/device/opening.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface.h"
#include "lockstep/model/modules/torch_cuda.h"
#include "lockstep/plan/cheap.h"
#include "lockstep/program/nodes.h"
#include "lockstep/recipe/mistakes.h"
#include "lockstep/run/session/batch_error.h"
#include "lockstep/run/session/fitting.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/session/memory_report.h"
#include "lockstep/run/session/rank_layout.h"

namespace lockstep::run {

namespace {

using base::ConfigError;
using device::DType;

void check_fp8_device(const recipe::Recipe& recipe, const device::Properties& device) {
  if (!device.fp8) {
    throw ConfigError(184, fmt::format("precision.compute = \"fp8\" needs a GPU of compute capability 8.9 or "
                                       "newer, but {} is {}; set precision.compute=bf16",
                                       device.name, device.instruction_set));
  }
  const bool gpu = device.instruction_set.starts_with("sm_");
  if (gpu && device.instruction_set != "sm_90" && recipe.precision.fp8_scaling != "tensor") {
    throw ConfigError(184, fmt::format("precision.fp8_scaling = \"{}\" needs a GPU of compute capability "
                                       "9.0, but {} is {}; set precision.fp8_scaling=tensor",
                                       recipe.precision.fp8_scaling, device.name, device.instruction_set));
  }
}

// What the device can do best, when the recipe leaves it open. A model of the user's own is as it was
// written: of its operations Lockstep knows nothing, and some (batch norm) do not take 16-bit weights.
DType resolve_precision(recipe::Resolved& resolved, const device::Properties& device, bool own_model) {
  std::string& wish = resolved.recipe.precision.compute;
  if (wish == "auto") {
    wish = own_model ? "fp32" : device.fast_bf16 ? "bf16" : device.fast_fp16 ? "fp16" : "fp32";
    resolved.origin["precision.compute"] = "auto";
  }
  if (wish == "fp8") check_fp8_device(resolved.recipe, device);
  return wish == "bf16" || wish == "fp8" ? DType::bf16 : wish == "fp16" ? DType::f16 : DType::f32;
}

void resolve_logits_chunk(recipe::Resolved& resolved, DType compute, bool cuda) {
  recipe::AutoInt& chunk = resolved.recipe.memory.logits_chunk;
  if (!chunk.is_auto) return;
  const int64_t budget = cuda ? int64_t{1} << 30 : int64_t{64} << 20;
  const int64_t rows = budget / (resolved.recipe.model.vocab.value * device::size_of(compute));
  chunk = std::max<int64_t>(64, rows / 64 * 64);
  resolved.origin["memory.logits_chunk"] = "auto";
}

void check_batch(const recipe::Recipe& recipe) {
  const auto& b = recipe.batch;
  if (!b.slices.is_auto && b.global % b.slices.value != 0) {
    throw BatchContradictionError(
        150, fmt::format("batch.slices = {} does not divide batch.global = {}; choose one of {}",
                         b.slices.value, b.global, base::divisors_near(b.global, b.slices.value)));
  }
  if (!b.strands.is_auto && b.slices.is_auto && b.global % b.strands.value != 0) {
    throw BatchContradictionError(
        151, fmt::format("batch.strands = {} does not divide batch.global = {}, so no batch.slices suits "
                         "both; choose one of {}",
                         b.strands.value, b.global, base::divisors_near(b.global, b.strands.value)));
  }
  if (!b.strands.is_auto && !b.slices.is_auto && b.slices.value % b.strands.value != 0) {
    throw BatchContradictionError(151, fmt::format("batch.strands = {} does not divide batch.slices = {}; "
                                                   "choose one of {} (batch.strands=auto uses the largest)",
                                                   b.strands.value, b.slices.value,
                                                   base::divisors_near(b.slices.value, b.strands.value)));
  }
}

// As many as slices, but not above 8, unless there are more ranks.
int64_t default_strands(int64_t slices, int64_t width) {
  int64_t strands = std::min<int64_t>(slices, std::max<int64_t>(8, width));
  while (slices % strands != 0) --strands;
  return strands;
}

// What can be said of a recipe before anything is opened but the folder of model.from and the beginning of
// data files: all of its mistakes at once.
void settle_what_is_said(recipe::Resolved& resolved, const Own& own, const PlanOptions& options) {
  recipe::Mistakes mistakes;
  mistakes.note([&] { check_batch(resolved.recipe); });
  if (!own.dataset) mistakes.note([&] { data::resolve_kind(resolved, options.reads_data); });
  if (!own.build_model) {
    mistakes.note([&] {
      adopt_model(resolved);
      recipe::Resolved tried = resolved;
      model::resolve_model(tried, 1);  // its vocabulary is held against the data's when that is open
    });
  }
  mistakes.refuse("the recipe");
}

// Only when ranks are really started: a plan for GPUs may be looked at where there are none.
void check_engine(const recipe::Recipe& recipe, bool cpu) {
  const comm::Engine* engine = comm::find_engine(recipe.parallel.engine);
  if (!cpu || engine == nullptr || engine->carries_memory_of(device::Kind::cpu)) return;
  throw ConfigError(522, fmt::format("parallel.engine = \"{}\" is for GPUs, but the ranks compute on the "
                                     "CPU; leave it \"auto\", or set run.device=cuda",
                                     engine->name));
}

// The cores of a host are shared by its ranks.
void set_threads(const recipe::Recipe& recipe, const comm::Seat& seat) {
  int threads = recipe.run.threads.is_auto ? 0 : static_cast<int>(recipe.run.threads.value);
  device::set_thread_count(threads);
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  const bool wished = threads > 0 || (variable != nullptr && device::parse_threads(variable));
  if (!wished && seat.local_world > 1) {
    device::set_thread_count(std::max(1, device::thread_count() / seat.local_world));
  }
}

int64_t available_bytes(const Plan& plan) {
  const int64_t limit = static_cast<int64_t>(plan.recipe().memory.limit_gib * (1 << 30));
  if (limit > 0 && !plan.exists) return limit;
  int64_t free = plan.device->properties().free_bytes;
  if (plan.device->id().kind == device::Kind::cpu)
    free /= plan.seat.local_world;  // the host's, for all of its ranks
  return limit > 0 ? std::min(limit, free) : free;
}

// Whether the device really gives what the plan needs: asked for and handed back at once.
bool trial(device::Device& device, const program::MemoryPlan& memory) {
  void* kept = nullptr;
  try {
    kept = device.allocate(memory.persistent_bytes);
    device.free(device.allocate(memory.transient_bytes + memory.external_bytes));
    device.free(kept);
    return true;
  } catch (const device::OutOfMemory&) {
    if (kept != nullptr) device.free(kept);
    return false;
  }
}

// The largest slice that fits: the smallest number of slices that divides the batch.
void resolve_slices(Plan& plan) {
  auto& batch = plan.resolved.recipe.batch;
  if (!batch.slices.is_auto) return;
  for (int64_t slices = 1; slices <= batch.global; ++slices) {
    if (batch.global % slices != 0 || (!batch.strands.is_auto && slices % batch.strands.value != 0)) continue;
    const int64_t width = plan.layout.ranks.width(), stages = plan.layout.stages.count;
    const int64_t strands = batch.strands.is_auto ? default_strands(slices, width) : batch.strands.value;
    // A strand for every data rank, and a slice for every stage. Where even the smallest slices are too few,
    // check_strands() says so.
    const bool enough = strands >= width && slices >= width * stages;
    if (!enough && slices != batch.global) continue;
    if (slices != batch.global) {
      Variant variant = variant_of(plan);
      variant.slices = slices, variant.strands = strands;
      program::Program program = program::compile(*plan.model, layout_of(plan, variant));
      const program::MemoryPlan memory = program::place(program);
      const bool fits = memory.peak_bytes() <= plan.available_bytes * 95 / 100 &&
                        (!plan.exists || trial(*plan.device, memory));
      if (!fits) continue;
    }
    batch.slices = slices;
    plan.resolved.origin["batch.slices"] = "auto";
    return;
  }
}

// The batch's buffers are as large as the data's samples.
void settle_words(model::Model& model, const data::Dataset& dataset, int64_t seq_len) {
  const auto settle = [&](int64_t& words, int64_t given, const char* what) {
    const int64_t wanted = words > 0 ? words : model.predicts_tokens ? seq_len : given;
    if (wanted != given) {
      throw ConfigError(176, fmt::format("a sample of the data has {} {}, but the model expects {}; provide "
                                         "data of that size, or build the model for this one",
                                         given, what, wanted));
    }
    if (!model.predicts_tokens) words = given;
  };
  settle(model.input_words, dataset.inputs_per_sample(seq_len), "inputs");
  settle(model.label_words, dataset.labels_per_sample(seq_len), "labels");
}

// "auto" in memory.recompute: on a GPU, what costs less than it is worth.
std::string settled(const Plan& plan, const std::string& recompute, const program::Layout& layout) {
  if (recompute != "auto") return recompute;
  if (plan.device->id().kind == device::Kind::cpu) return "none";
  const plan::Machine machine =
      plan::this_machine(plan.device->id().kind, plan.device->properties(), plan.seat.local_world);
  const double share = plan::cheap_share(*plan.model, layout.slice, *layout.kernels, machine);
  return share > 0 && share < plan::kCheapShare ? "cheap" : "none";
}

struct BuildFor {
  DType compute;
  const model::Parts& parts;
};

// The model of the recipe or the caller's own, and how another rank's part of it is built.
void add_model(Plan& plan, recipe::Resolved& resolved, const Own& own, const BuildFor& wanted) {
  const auto& [compute, parts] = wanted;
  plan.own_model = static_cast<bool>(own.build_model);
  if (own.build_model) {
    check_own_model(parts);
    if (plan.device->id().kind == device::Kind::cuda) model::load_torch_cuda_where_linked();
    if (resolved.recipe.precision.compute == "fp8") {
      throw ConfigError(185,
                        "precision.compute = \"fp8\" is for the built-in families, because your own model's "
                        "modules do their own products; set precision.compute=bf16");
    }
  } else {
    model::resolve_model(resolved, plan.dataset->vocab());
    model::check_vocabulary(resolved,
                            {.vocab = plan.dataset->vocab(),
                             .describe = plan.dataset->describe(),
                             .of_any_tokenizer = data::is_of_any_tokenizer(resolved.recipe.data.kind) ||
                                                 resolved.recipe.data.tokenizer != "bytes"});
    resolve_logits_chunk(resolved, compute, plan.device->id().kind == device::Kind::cuda);
    check_parts(resolved.recipe, parts, plan.seat.world);
    model::check_fp8(resolved.recipe, parts);
  }
  plan.build_part = [recipe = resolved.recipe, compute = compute, build = own.build_model,
                     optimizer = plan.optimizer](const model::Parts& of_rank) {
    model::Model model = build ? build(recipe, compute) : model::build_model(recipe, compute, of_rank);
    assign_groups(model, recipe, optimizer);
    return model;
  };
  plan.model = std::make_unique<model::Model>(plan.build_part(parts));
}

// Slices, strands and what is computed again, where the recipe says "auto"; then the whole layout.
void resolve_layout(Plan& plan) {
  resolve_slices(plan);
  auto& batch = plan.resolved.recipe.batch;
  if (batch.strands.is_auto) {
    batch.strands = default_strands(batch.slices.value, plan.layout.ranks.width());
    plan.resolved.origin["batch.strands"] = "auto";
  }
  check_strands(plan.recipe(), plan.layout.ranks);
  model::check_fp8_slice(plan.recipe());
  std::string& recompute = plan.resolved.recipe.memory.recompute;
  plan.layout = layout_of(plan, variant_of(plan));
  if (recompute == "auto") {
    recompute = plan.layout.recompute.cheap ? "cheap" : "none";
    plan.resolved.origin["memory.recompute"] = "auto";
  }
}

// Where what "auto" means by default does not fit, the cheapest that does, if there is one.
void resolve_smaller(Plan& plan) {
  const auto open = [&](const char* key) { return plan.resolved.origin.at(key) == "auto"; };
  const Freedom freedom{.slices = open("batch.slices"),
                        .fewer_slices = open("batch.slices"),
                        .strands = open("batch.strands"),
                        .recompute = open("memory.recompute")};
  const std::optional<Fitting> found = cheapest_fitting(plan, freedom, plan.available_bytes * 95 / 100);
  if (!found || (plan.exists && !trial(*plan.device, found->memory))) return;
  recipe::Recipe& recipe = plan.resolved.recipe;
  recipe.batch.slices = found->variant.slices;
  recipe.batch.strands = found->variant.strands;
  recipe.memory.recompute = found->variant.recompute;
  plan.layout = layout_of(plan, found->variant);
  plan.program = program::compile(*plan.model, plan.layout);
  plan.memory = program::place(plan.program);
}

std::string instruction_title(const Plan& plan, int32_t n) {
  const std::vector<program::Instruction>& all = plan.program.instructions;
  if (n < 0 || static_cast<size_t>(n) >= all.size()) return "";
  return program::title(plan.program, *plan.model, all[static_cast<size_t>(n)]);
}

}  // namespace

PlanOptions for_this(const Ranks& ranks) {
  PlanOptions options;
  if (ranks.world() != nullptr) options.seat = ranks.world()->seat();
  options.shares_memory = ranks.shares_memory();
  options.node_shares_memory = ranks.node_shares_memory();
  options.per_node = ranks.per_node();
  return options;
}

void check_layout(const recipe::Recipe& recipe, int ranks) {
  check_batch(recipe);
  check_engine(recipe, ranks > 1 && recipe.run.device == "cpu");
  const program::DataRanks layout = rank_layout(recipe, {.world = ranks}).data;
  if (!recipe.batch.slices.is_auto && !recipe.batch.strands.is_auto) check_strands(recipe, layout);
  if (layout.width() > recipe.batch.global) {
    throw ConfigError(154,
                      fmt::format("batch.global = {} samples cannot be distributed over {} data ranks; start "
                                  "at most {}, or raise batch.global, which changes the bits of the result",
                                  recipe.batch.global, layout.width(), recipe.batch.global));
  }
}

Variant variant_of(const Plan& plan) {
  const recipe::Recipe& recipe = plan.recipe();
  return {.slices = recipe.batch.slices.value,
          .strands = recipe.batch.strands.value,
          .recompute = recipe.memory.recompute,
          .moments = plan.optimizer.moment_type,
          .offload = plan.optimizer.offload};
}

program::Layout layout_of(const Plan& plan, const Variant& variant) {
  const recipe::Recipe& recipe = plan.recipe();
  program::Layout layout;
  layout.slice = slice_of({recipe.batch.global / variant.slices, recipe.data.seq_len}, plan.model->parts);
  layout.slices = variant.slices;
  layout.strands = variant.strands;
  layout.ranks = plan.layout.ranks;
  program::resolve_nodes(layout.ranks, layout.strands);
  layout.stages = plan.layout.stages;
  layout.stages.pieces = cut_stages(recipe, *plan.model, layout);
  layout.rules = state_rules(plan.optimizer, variant.moments, kernels::kernels_for(plan.device->id().kind));
  layout.offload = variant.offload;
  layout.kernels = &kernels::kernels_for(plan.device->id().kind);
  layout.recompute = program::parse_recompute(settled(plan, variant.recompute, layout), *plan.model);
  return layout;
}

void check_variant(const Plan& plan, const Variant& variant) {
  recipe::Recipe recipe = plan.recipe();
  recipe.batch.slices = variant.slices;
  recipe.batch.strands = variant.strands;
  check_batch(recipe);
  check_strands(recipe, plan.layout.ranks);
  check_slices(recipe, plan.layout.ranks, plan.layout.stages, plan.model->parts);
  model::check_fp8_slice(recipe);
}

plan::Traffic traffic_of(const Plan& plan) {
  return plan::traffic_of({.program = plan.program,
                           .model = *plan.model,
                           .mesh = mesh_of(plan.layout.ranks, plan.model->parts, plan.layout.stages),
                           .rank = plan.seat.rank,
                           .per_node = plan.per_node});
}

program::Program compile_for_rank(const Plan& plan, int rank, program::MemoryPlan& memory) {
  const RankLayout there = rank_layout(plan.recipe(), {.rank = rank, .world = plan.seat.world});
  program::Layout layout = plan.layout;
  layout.ranks.replica = there.data.replica, layout.ranks.shard_rank = there.data.shard_rank;
  layout.stages.self = there.stages.self;
  model::Model model = plan.build_part(there.parts);
  model.input_words = plan.model->input_words, model.label_words = plan.model->label_words;
  program::Program program = program::compile(model, layout);
  memory = program::place(program);
  return program;
}

Plan make_plan(recipe::Resolved resolved, Own own, PlanOptions options) {
  Plan plan;
  plan.seat = options.seat;
  plan.per_node = options.per_node;
  plan.exists = options.exists;
  plan.laps = options.laps;
  settle_what_is_said(resolved, own, options);
  device::Opening opening(resolved.recipe.run.device, options.seat.local_rank, options.seat.world > 1);
  const device::Id id = opening.id();
  base::end_lap(plan.laps, "find the device");
  set_threads(resolved.recipe, options.seat);
  const bool cpu = id.kind == device::Kind::cpu;
  const RankLayout here = rank_layout(resolved.recipe, options.seat,
                                      {.shares_memory = cpu && options.shares_memory,
                                       .node_shares_memory = cpu && options.node_shares_memory,
                                       .per_node = options.per_node});
  plan.layout.ranks = here.data;
  plan.layout.stages = here.stages;
  if (!own.dataset && !options.reads_data) {
    model::apply_preset(resolved);  // which may say how many tokens there are
    own.dataset = data::stand_in_dataset(resolved.recipe);
  }
  plan.dataset = own.dataset ? std::move(own.dataset) : data::open_dataset(resolved.recipe, options.data_use);
  base::end_lap(plan.laps, "open the data");
  plan.device = opening.take();
  base::end_lap(plan.laps, "open the device");
  static_cast<void>(kernels::kernels_for(id.kind));
  base::end_lap(plan.laps, "load its kernels");  // of the CPU: LibTorch
  const DType compute = resolve_precision(resolved, plan.device->properties(), own.build_model != nullptr);
  plan.optimizer = optim::make_optimizer(resolved.recipe, compute == DType::f16);
  add_model(plan, resolved, own, {compute, here.parts});
  settle_words(*plan.model, *plan.dataset, resolved.recipe.data.seq_len);
  base::end_lap(plan.laps, "build the model");
  if (plan.optimizer.offload && id.kind == device::Kind::cpu) {
    throw ConfigError(187,
                      "optim.offload = true keeps moments in host memory, but this run is on the CPU, where "
                      "they already are; set optim.offload=false, or run.device to a GPU");
  }
  for (const optim::Rule& rule : plan.optimizer.rules) {
    const bool anywhere = rule.kind->own == nullptr && (!rule.kind->whole || rule.kind->whole_on_gpu);
    if (anywhere || id.kind == device::Kind::cpu) continue;
    throw ConfigError(189,
                      fmt::format("optim.name = \"{}\" has a rule for the CPU only: set run.device=cpu, or "
                                  "another optim.name",
                                  rule.kind->name));
  }
  plan.resolved = std::move(resolved);
  plan.available_bytes = available_bytes(plan);
  resolve_layout(plan);
  base::end_lap(plan.laps, "plan attention and recomputation");
  check_slices(plan.recipe(), plan.layout.ranks, plan.layout.stages, here.parts);
  plan.program = program::compile(*plan.model, plan.layout);
  plan.memory = program::place(plan.program);
  if (plan.memory.peak_bytes() > plan.available_bytes) resolve_smaller(plan);
  program::check(plan.program, *plan.model);
  if (options.must_fit && plan.memory.peak_bytes() > plan.available_bytes)
    throw_out_of_memory(plan, plan.available_bytes);
  base::end_lap(plan.laps, "compile the step and place its memory");
  opening.finish(plan.laps);
  base::end_lap(plan.laps, "wait for the libraries");
  return plan;
}

namespace {

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
  if (const std::string& model = plan.recipe().model.from; !model.empty())
    weights_from = load_weights(*parameters, *plan.device, *ranks, plan.recipe().model.family, model);
  base::end_lap(plan.laps, "set the first weights");
  executor =
      std::make_unique<Executor>(*plan.model, plan.program, *memory, *plan.device, executor_options(*this));
  base::end_lap(plan.laps, "bind the step's calls");
  if (plan.device->id().kind == device::Kind::cuda && has_links(plan.program)) {
    executor->rehearse();
    base::end_lap(plan.laps, "load the kernels");
  }
}

Executor::Options executor_options(const Session& session) {
  const std::string wish = base::environment("LOCKSTEP_GRAPH").value_or("");
  return {.optimizer = session.plan.optimizer,
          .tf32 = session.plan.recipe().precision.tf32,
          .ranks = session.ranks,
          .ring = session.ring,
          .watch = session.watch(),
          .graph = wish != "off" && session.plan.model->can_be_captured(),
          .graph_of_lanes = wish == "all"};
}

Session::~Session() {
  executor.reset();
  if (marks_) ranks->record_in(nullptr);  // they go before the device does
}

watch::RecordedNames recorded_names(const Session& session) {
  watch::RecordedNames names{.instructions = {}, .groups = session.ranks->recorded()};
  for (const program::Instruction& i : session.plan.program.instructions) {
    std::string text = program::title(session.plan.program, *session.plan.model, i);
    if (const size_t among = text.find(" among "); among != std::string::npos) text.resize(among);
    names.instructions.push_back(std::move(text));
  }
  return names;
}

}  // namespace lockstep::run

#include "lockstep/run/session/session_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/typed_words.h"
#include "lockstep/device/opening.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/kernels/absent.h"
#include "lockstep/model/adapters.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface.h"
#include "lockstep/model/modules/module_file.h"
#include "lockstep/model/modules/torch_cuda.h"
#include "lockstep/plan/cheap.h"
#include "lockstep/program/nodes.h"
#include "lockstep/run/session/layout_checks.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/session/memory_report.h"
#include "lockstep/run/session/param_groups.h"
#include "lockstep/run/session/rank_layout.h"
#include "lockstep/run/session/recipe_checks.h"
#include "lockstep/run/session/resolve_auto.h"
#include "lockstep/run/session/stage_cut.h"

namespace lockstep::run {

namespace {

using base::ConfigError;
using device::DType;

// The cores of a host are shared by its ranks.
void set_threads(const recipe::Recipe& recipe, const comm::Seat& seat) {
  int threads = recipe.run.threads.is_auto ? 0 : static_cast<int>(recipe.run.threads.value);
  device::set_thread_count(threads);
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  const bool requested = threads > 0 || (variable != nullptr && device::parse_threads(variable));
  if (!requested && seat.local_world > 1) {
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

// The batch's buffers are as large as the data's samples.
void resolve_sample_sizes(model::Model& model, const data::Dataset& dataset, int64_t seq_len) {
  const auto resolve = [&](int64_t& words, int64_t given, const char* what) {
    const int64_t wanted = words > 0 ? words : model.predicts_tokens ? seq_len : given;
    if (wanted != given) {
      throw ConfigError(176, fmt::format("a sample of the data has {} {}, but the model expects {}; provide "
                                         "data of that size, or build the model for this one",
                                         given, what, wanted));
    }
    if (!model.predicts_tokens) words = given;
  };
  resolve(model.input_words, dataset.inputs_per_sample(seq_len), "inputs");
  resolve(model.label_words, dataset.labels_per_sample(seq_len), "labels");
  const auto* typed = dynamic_cast<const data::TypedWords*>(&dataset);
  if (typed == nullptr) return;
  const auto compare = [](DType wanted, DType given, const char* what) {
    if (wanted == given) return;
    const auto name = [](DType type) { return type == DType::f32 ? "floats" : "integers"; };
    throw ConfigError(
        176, fmt::format("the {} of the data are {}, but the model expects {}; save them as {}, or "
                         "build the model for these",
                         what, name(given), name(wanted), wanted == DType::f32 ? "float32" : "int32"));
  };
  const model::BatchTypes wanted = model::batch_types(model);
  compare(wanted.inputs, typed->input_type(), "inputs");
  compare(wanted.labels, typed->label_type(), "labels");
}

// "auto" in memory.recompute: on a GPU, what costs less than it is worth.
std::string resolved_recompute(const Plan& plan, const std::string& recompute,
                               const program::Layout& layout) {
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
    if (resolved.recipe.tune.method == "lora") {
      throw ConfigError(
          196,
          "tune.method = \"lora\" is for the built-in families, because your own model's modules "
          "do their own products; set tune.method=full");
    }
    if (plan.exists && plan.device->id().kind == device::Kind::cuda) {
      !module_file_of(resolved.recipe.model.from).empty() ? model::load_torch_cuda_for_file()
                                                          : model::load_torch_cuda_where_linked();
    }
    if (resolved.recipe.precision.compute == "fp8") {
      throw ConfigError(185,
                        "precision.compute = \"fp8\" is for the built-in families, because your own model's "
                        "modules do their own products; set precision.compute=bf16");
    }
  } else {
    model::resolve_model(resolved, plan.dataset->vocab());
    model::check_vocabulary(resolved, {.vocab = plan.dataset->vocab(),
                                       .describe = plan.dataset->describe(),
                                       .of_any_tokenizer = data::is_of_any_tokenizer(resolved.recipe.data) ||
                                                           resolved.recipe.data.tokenizer != "bytes"});
    resolve_logits_chunk(resolved, compute, plan.device->id().kind == device::Kind::cuda);
    check_parts(resolved.recipe, parts, plan.seat.world);
    model::check_fp8(resolved.recipe, parts);
  }
  plan.build_part = [recipe = resolved.recipe, compute = compute, build = own.build_model,
                     optimizer = plan.optimizer](const model::Parts& of_rank, int64_t chunk) {
    if (chunk > 0 && !build) {
      recipe::Recipe other = recipe;
      other.memory.logits_chunk = chunk;
      model::Model model = model::build_model(other, compute, of_rank);
      assign_groups(model, other, optimizer);
      return model;
    }
    model::Model model = build ? build(recipe, compute) : model::build_model(recipe, compute, of_rank);
    assign_groups(model, recipe, optimizer);
    return model;
  };
  try {
    plan.model = std::make_unique<model::Model>(plan.build_part(parts, 0));
  } catch (const model::TargetError& error) {
    const recipe::Recipe::Tune& tune = resolved.recipe.tune;
    if (tune.adapter.empty() || !resolved.origin.at("tune.targets").starts_with(tune.adapter)) throw;
    throw checkpoint::CheckpointError(
        343, fmt::format("{} does not fit this model: it is for {}, which is none of the linear maps of its "
                         "layers; use the "
                         "model that adapter_config.json names, or merge the adapter into it with PEFT",
                         tune.adapter, base::quoted(error.target())));
  }
  if (parts.fixes_products() && parts.fixes_sequences()) {
    model::Parts one = parts;
    one.tensor = std::exchange(one.product_strands, 1);
    one.tensor_rank = 0;
    check_both_strands(plan.build_part(one, 0));
  }
}

// ConfigError 271: documents that nobody would keep apart. A stand-in for data says nothing of its documents.
void check_packing(const Plan& plan, const recipe::Recipe& recipe, const model::Parts& parts,
                   bool reads_data) {
  if (!recipe.data.pack && !plan.dataset->has_documents()) return;
  const auto refuse = [](const std::string& why) {
    throw ConfigError(271, fmt::format("data.pack = true: {}; set data.pack=false", why));
  };
  if (plan.own_model || !plan.model->documents)
    refuse("this model does not keep the documents of a sample apart");
  if (reads_data && !plan.dataset->has_documents())
    refuse(fmt::format("data.kind = \"{}\" has no documents to pack", recipe.data.kind));
  // Their kernels for chunks of a sequence have not run on any GPU yet.
  if (plan.device->id().kind == device::Kind::cpu) return;
  if (parts.fixes_sequences()) {
    throw ConfigError(271,
                      fmt::format("data.pack = true: with batch.sequence_strands = {} documents are kept "
                                  "apart on the CPU only so far; set batch.sequence_strands=1, or "
                                  "data.pack=false",
                                  parts.sequence_strands));
  }
  if (parts.context > 1 && !parts.heads) {
    throw ConfigError(271,
                      fmt::format("data.pack = true: a ring of parallel.context = {} ranks keeps documents "
                                  "apart on the CPU only so far; set parallel.context_form=heads, or "
                                  "data.pack=false",
                                  parts.context));
  }
}

// ConfigError 393: pairs and a loss that is not of them, or the other way round; 394: what a loss of pairs
// cannot be combined with. A stand-in for data says nothing of its pairs.
void check_pairs(const Plan& plan, const recipe::Recipe& recipe, const model::Parts& parts, bool reads_data) {
  const bool wanted = recipe.tune.loss == "dpo";
  if (reads_data && plan.dataset->has_pairs() && !wanted) {
    throw ConfigError(393, fmt::format("data.kind = \"{}\" has pairs of a chosen and a rejected answer, and "
                                       "tune.loss = \"{}\" would train on both; set tune.loss=dpo",
                                       recipe.data.kind, recipe.tune.loss));
  }
  if (!wanted) return;
  if (reads_data && !plan.dataset->has_pairs()) {
    throw ConfigError(393,
                      fmt::format("tune.loss = \"dpo\" needs pairs of a chosen and a rejected answer, but "
                                  "data.kind = \"{}\" has none; set data.kind=preference and data.path to "
                                  "a file of them",
                                  recipe.data.kind));
  }
  const auto refuse = [](const std::string& why) {
    throw ConfigError(394, fmt::format("tune.loss = \"dpo\": {}", why));
  };
  if (plan.own_model || !plan.model->pairs)
    refuse("only the built-in language models have this loss; set tune.loss=cross_entropy");
  if (recipe.data.pack) refuse("pairs are not packed; set data.pack=false");
  if (parts.context > 1)
    refuse(
        fmt::format("parallel.context = {} cuts sequences whose log-probabilities it needs whole; set "
                    "parallel.context=1",
                    parts.context));
}

// ConfigError 187, 189: what an optimizer asks for and this device does not have.
void check_optimizer(const optim::Optimizer& optimizer, bool cpu) {
  if (optimizer.offload && cpu) {
    throw ConfigError(187,
                      "optim.offload = true keeps moments in host memory, but this run is on the CPU, where "
                      "they already are; set optim.offload=false, or run.device to a GPU");
  }
  for (const optim::Rule& rule : optimizer.rules) {
    const bool anywhere = rule.kind->own == nullptr && (!rule.kind->whole || rule.kind->whole_on_gpu);
    if (anywhere || cpu) continue;
    throw ConfigError(189,
                      fmt::format("optim.name = \"{}\" has a rule for the CPU only: set run.device=cpu, or "
                                  "another optim.name",
                                  rule.kind->name));
  }
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

Variant variant_of(const Plan& plan) {
  const recipe::Recipe& recipe = plan.recipe();
  return {.slices = recipe.batch.slices.value,
          .strands = recipe.batch.strands.value,
          .recompute = recipe.memory.recompute,
          .moments = plan.optimizer.moment_type,
          .offload = plan.optimizer.offload,
          .logits_chunk = recipe.memory.logits_chunk.is_auto ? 0 : recipe.memory.logits_chunk.value};
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
  layout.rules = state_rules(plan.optimizer, variant.moments, *plan.kernels);
  layout.offload = variant.offload;
  layout.kernels = plan.kernels;
  layout.recompute =
      program::parse_recompute(resolved_recompute(plan, variant.recompute, layout), *plan.model);
  return layout;
}

void check_variant(const Plan& plan, const Variant& variant) {
  recipe::Recipe recipe = plan.recipe();
  recipe.batch.slices = variant.slices;
  recipe.batch.strands = variant.strands;
  check_batch(recipe);
  check_strands(recipe, plan.layout.ranks);
  check_slices(recipe, plan.layout.ranks, plan.layout.stages, plan.model->parts);
  model::check_fp8_slice(recipe, plan.model->parts);
}

plan::Traffic traffic_of(const Plan& plan) {
  return plan::traffic_of({.program = plan.program,
                           .model = *plan.model,
                           .mesh = mesh_of(plan.layout.ranks, plan.model->parts, plan.layout.stages),
                           .rank = plan.seat.rank,
                           .per_node = plan.per_node});
}

program::Program compile_for_rank(const Plan& plan, int rank, program::MemoryPlan& memory) {
  return compile_for_rank(plan, {.layout = plan.layout}, rank, memory);
}

program::Program compile_for_rank(const Plan& plan, const OtherStep& step, int rank,
                                  program::MemoryPlan& memory) {
  const RankLayout there = rank_layout(plan.recipe(), {.rank = rank, .world = plan.seat.world});
  program::Layout layout = step.layout;
  layout.ranks.replica = there.data.replica, layout.ranks.shard_rank = there.data.shard_rank;
  layout.stages.self = there.stages.self;
  model::Model model = plan.build_part(there.parts, step.logits_chunk);
  model.input_words = plan.model->input_words, model.label_words = plan.model->label_words;
  program::Program program = program::compile(model, layout);
  memory = program::place(program);
  return program;
}

Plan make_plan(recipe::Resolved resolved, Own own, PlanOptions options) {
  const std::string module = own.build_model ? "" : module_file_of(resolved.recipe.model.from);
  if (!module.empty()) {
    own.build_model = [module](const recipe::Recipe& recipe, DType compute) {
      return model::model_of_file(module, recipe, compute);
    };
  }
  Plan plan;
  plan.seat = options.seat;
  plan.per_node = options.per_node;
  plan.exists = options.exists;
  plan.laps = options.laps;
  check_before_opening(resolved, own, options);
  std::optional<device::Opening> opening;
  if (!options.device)
    opening.emplace(resolved.recipe.run.device, options.seat.local_rank, options.seat.world > 1);
  const device::Id id = opening ? opening->id() : device::Id{options.device->kind, 0};
  base::end_lap(plan.laps, "find the device");
  if (opening) set_threads(resolved.recipe, options.seat);
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
  plan.device = opening ? opening->take() : device::absent_device(*options.device);
  base::end_lap(plan.laps, "open the device");
  plan.kernels = opening || cpu ? &kernels::kernels_for(id.kind) : &kernels::absent_cuda_kernels();
  base::end_lap(plan.laps, "load its kernels");  // of the CPU: LibTorch
  const DType compute = resolve_precision(resolved, plan.device->properties(), own.build_model != nullptr);
  plan.optimizer = optim::make_optimizer(resolved.recipe, compute == DType::f16);
  add_model(plan, resolved, own, {compute, here.parts});
  check_pairs(plan, resolved.recipe, here.parts, options.reads_data);
  check_packing(plan, resolved.recipe, here.parts, options.reads_data);
  resolve_sample_sizes(*plan.model, *plan.dataset, resolved.recipe.data.seq_len);
  base::end_lap(plan.laps, "build the model");
  check_optimizer(plan.optimizer, cpu);
  plan.resolved = std::move(resolved);
  plan.available_bytes = available_bytes(plan);
  resolve_layout(plan);
  base::end_lap(plan.laps, "plan attention and recomputation");
  check_slices(plan.recipe(), plan.layout.ranks, plan.layout.stages, here.parts);
  plan.program = program::compile(*plan.model, plan.layout);
  plan.memory = program::place(plan.program);
  if (options.may_shrink && plan.memory.peak_bytes() > plan.available_bytes) resolve_smaller(plan);
  if (options.proves) program::check(plan.program, *plan.model);
  if (options.must_fit && plan.memory.peak_bytes() > plan.available_bytes)
    throw_out_of_memory(plan, plan.available_bytes);
  base::end_lap(plan.laps, "compile the step and place its memory");
  if (opening) opening->finish(plan.laps);
  base::end_lap(plan.laps, "wait for the libraries");
  return plan;
}

}  // namespace lockstep::run

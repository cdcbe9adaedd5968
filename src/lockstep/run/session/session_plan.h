// A recipe with nothing left open, the model it names, and the step program that was compiled for one rank.
//
//     Plan plan = make_plan(recipe::read_recipe({.file = "first.toml"}), {});   // no memory taken yet
//
// `explain program`, `explain memory` and `tune` need no more than this; Session (session.h) runs it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/laps.h"
#include "lockstep/data/dataset.h"
#include "lockstep/device/absent_device.h"
#include "lockstep/device/device.h"
#include "lockstep/model/block.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/plan/traffic.h"
#include "lockstep/program/check.h"
#include "lockstep/program/compile.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/executor/ranks.h"

namespace lockstep::run {

// What a C++ program may bring instead of what the recipe names.
struct Own {
  std::shared_ptr<data::Dataset> dataset = nullptr;  // the program's, which may plan more than once
  std::function<model::Model(const recipe::Recipe&, device::DType)> build_model = nullptr;
};

struct Plan {
  recipe::Resolved resolved;  // no "auto" left in what decides the numbers
  std::shared_ptr<data::Dataset> dataset;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<model::Model> model;  // this rank's part of it
  // Another rank's, or with other rows of logits at a time; 0: as the recipe has them.
  std::function<model::Model(const model::Parts&, int64_t logits_chunk)> build_part;
  bool own_model = false;  // a C++ program has brought it (Own)
  optim::Optimizer optimizer;
  program::Layout layout;
  program::Program program;  // checked and placed
  program::MemoryPlan memory;
  const kernels::Kernels* kernels = nullptr;  // of the device
  int64_t available_bytes = 0;                // on the device, or memory.limit_gib
  bool exists = true;                         // as in PlanOptions
  comm::Seat seat;                            // this process among the ranks
  int per_node = 0;                           // ranks of each node, where there are several (PlanOptions)
  base::Laps* laps = nullptr;                 // of the way to the first step, where that is timed
  const recipe::Recipe& recipe() const { return resolved.recipe; }
  // Of ranks that work on the same slices, one says what is in them.
  bool counts_batch() const {
    return program.stages.self == 0 && model->parts.tensor_rank == 0 && model->parts.context_rank == 0;
  }
  // What throughput is counted in: tokens, or samples where the model predicts no tokens.
  const char* unit() const { return model->predicts_tokens ? "tokens" : "samples"; }
  int64_t units_per_step() const {
    return recipe().batch.global * (model->predicts_tokens ? recipe().data.seq_len : 1);
  }
};

struct PlanOptions {
  bool must_fit = true;  // memory that does not suffice is RunError 420 with the report
  bool proves = true;  // the program is checked before anybody trusts it; false: it is one of many to compare
  bool may_shrink = true;  // what is "auto" and does not fit is made smaller, which takes many compilations
  data::Use data_use = data::Use::train;
  bool reads_data = true;  // false: nobody will read a sample, and the data need not be there
  bool exists = true;      // false: nothing will be run, and memory.limit_gib may be more than there is here
  comm::Seat seat;         // the rank to plan for; need not exist
  std::optional<device::Absent> device = {};  // to plan for, instead of one that is here; then !exists
  // Of CPU ranks: they read each other's memory, so that reductions stage nothing; those of one node do.
  bool shares_memory = true, node_shares_memory = true;
  int per_node = 0;            // ranks of each node, where there are several; 0: one, or not the same on each
  base::Laps* laps = nullptr;  // must outlive what is made from the plan
};

// To plan for this process.
PlanOptions for_this(const Ranks& ranks);

// Opens data and device, resolves every "auto", compiles and checks. ConfigError or DataError when the recipe
// cannot be run here.
Plan make_plan(recipe::Resolved resolved, Own own, PlanOptions options = {});

// What this rank sends in one step.
plan::Traffic traffic_of(const Plan& plan);

// What can be said of so many ranks before anything is opened: ConfigError with the arithmetic.
void check_layout(const recipe::Recipe& recipe, int ranks);

// What the same model and batch may be trained with instead (run/session/fitting.h).
struct Variant {
  int64_t slices = 1, strands = 1;
  std::string recompute = "none";  // as memory.recompute
  device::DType moments = device::DType::f32;
  bool offload = false;
  int64_t logits_chunk = 0;  // 0: as the recipe has it
};
Variant variant_of(const Plan& plan);  // as it is planned
program::Layout layout_of(const Plan& plan, const Variant& variant);
// ConfigError where the ranks or the precision do not allow it.
void check_variant(const Plan& plan, const Variant& variant);

// The program of another rank of the same layout, which need not exist; placed.
program::Program compile_for_rank(const Plan& plan, int rank, program::MemoryPlan& memory);
// The same with another layout, and rows of logits as in Variant.
struct OtherStep {
  program::Layout layout;
  int64_t logits_chunk = 0;
};
program::Program compile_for_rank(const Plan& plan, const OtherStep& step, int rank,
                                  program::MemoryPlan& memory);

}  // namespace lockstep::run

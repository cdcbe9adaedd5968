// Property tests: any model in any layout compiles to a sound program whose buffers never share memory while
// alive.
#include "lockstep/program/compile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/model/families/family.h"
#include "lockstep/program/check.h"
#include "lockstep/program/testing.h"

namespace lockstep::program {
namespace {

Case random_case(uint32_t seed) {
  Draw draw(seed);
  const int64_t strands = 1 + draw.below(8), slices = strands * (1 + draw.below(3));
  Case c = case_of(
      {"model.family=" + draw.pick({"gpt2", "llama", "mlp"}), "model.layers=" + draw.pick({"1", "2", "5"}),
       "model.hidden=" + draw.pick({"8", "24", "40"}), "model.heads=" + draw.pick({"1", "2", "4"}),
       "model.tied=" + draw.pick({"true", "false"}), "model.dropout=" + draw.pick({"0.0", "0.1"}),
       "data.seq_len=" + draw.pick({"3", "16"}), "memory.logits_chunk=" + draw.pick({"7", "64"})},
      draw.below(2) == 0 ? device::DType::f32 : device::DType::bf16);
  c.layout.slice.samples = 1 + draw.below(3);
  c.layout.slices = slices;
  c.layout.strands = strands;
  const std::string recompute = draw.pick({"none", "cheap", "full", "every-2", "every-3", "up", "up,down"});
  c.layout.recompute = parse_recompute(recompute, *c.model);
  const int moments = 1 + static_cast<int>(draw.below(2));
  c.layout.rules = {element_rule(moments, draw.below(2) == 0 ? device::DType::f32 : device::DType::bf16)};
  c.layout.offload = draw.below(3) == 0;
  treat_some(c, draw);
  c.words += fmt::format("slices {} strands {} recompute {}", slices, strands, recompute);
  return c;
}

void expect_no_overlap(const Program& program) {
  const std::vector<Lifetime> lives = lifetimes(program);
  for (size_t a = 0; a < program.buffers.size(); ++a) {
    for (size_t b = a + 1; b < program.buffers.size(); ++b) {
      const Buffer &x = program.buffers[a], &y = program.buffers[b];
      if (x.persistent != y.persistent || x.host != y.host || lives[a].first < 0 || lives[b].first < 0)
        continue;
      const bool in_time = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool in_space = x.offset < y.offset + y.bytes() && y.offset < x.offset + x.bytes();
      ASSERT_FALSE(in_time && in_space) << x.name << " and " << y.name;
    }
  }
}

TEST(Compile, RandomModelsAndLayoutsAreSound) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, c.words));
    Program program = compile(*c.model, c.layout);
    ASSERT_NO_THROW(check(program, *c.model));
    const MemoryPlan plan = place(program);
    expect_no_overlap(program);
    EXPECT_GE(plan.transient_bytes, plan.live_bytes);
    EXPECT_LE(static_cast<double>(plan.transient_bytes), 1.10 * static_cast<double>(plan.live_bytes) + 4096);
  }
}

// A strand of one slice is added to the sum that it would be joined to, where the kernels form their sums
// first.
TEST(Compile, StrandsOfOneSliceNeedNoGradientsOfTheirOwn) {
  struct Row {
    int64_t slices, strands;
    bool own_sums;
    std::string more;
    int joins, levels;  // of a layer
    int joins_of_head, levels_of_head;
  };
  const Row rows[] = {
      {4, 4, false, "", 3, 3, 3, 3},
      {4, 4, true, "", 1, 2, 1, 2},
      {8, 8, true, "", 3, 3, 3, 3},
      {3, 3, true, "", 0, 1, 0, 1},  // ((0 + 1) + 2)
      {7, 7, true, "", 2, 2, 2, 2},
      {8, 4, true, "", 3, 3, 3, 3},  // slices of a strand are folded first
      {4, 1, true, "", 0, 1, 0, 1},
      {4, 4, true, "memory.logits_chunk=5", 1, 2, 3, 3},  // the head adds chunk by chunk
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(fmt::format("{} slices {} strands {} {}", row.slices, row.strands, row.own_sums, row.more));
    std::vector<std::string> words = {"model.family=gpt2", "model.layers=1",   "model.hidden=8",
                                      "model.heads=2",     "model.tied=false", "data.seq_len=16"};
    if (!row.more.empty()) words.push_back(row.more);
    Case c = case_of(words, device::DType::bf16);
    kernels::Kernels kernels = *c.layout.kernels;
    kernels.adds_own_sums = row.own_sums;
    c.layout.kernels = &kernels;
    c.layout.slices = row.slices, c.layout.strands = row.strands;
    const Program program = compile(*c.model, c.layout);
    ASSERT_NO_THROW(check(program, *c.model));
    std::map<int, int> joins;
    for (const Instruction& i : program.instructions) joins[i.block] += i.is<JoinStrands>() ? 1 : 0;
    const int head = static_cast<int>(program.blocks.size()) - 1;
    EXPECT_EQ(joins[1], row.joins);
    EXPECT_EQ(joins[head], row.joins_of_head);
    EXPECT_EQ(static_cast<int>(program.blocks[1].gradients.size()), row.levels);
    EXPECT_EQ(static_cast<int>(program.blocks[static_cast<size_t>(head)].gradients.size()),
              row.levels_of_head);
  }
}

TEST(Compile, RecomputationNeedsLessMemory) {
  recipe::Resolved resolved =
      recipe::read_recipe({.file = "", .overrides = {"model.layers=8", "memory.logits_chunk=64"}});
  model::resolve_model(resolved, 50);
  const model::Model model = model::build_model(resolved.recipe, device::DType::f32);
  int64_t before = std::numeric_limits<int64_t>::max();
  for (const char* recompute : {"none", "cheap", "up", "every-2", "full"}) {
    Layout layout{.slice = {8, 64},
                  .recompute = parse_recompute(recompute, model),
                  .kernels = &kernels::kernels_for(device::Kind::cpu)};
    Program program = compile(model, layout);
    const int64_t bytes = place(program).transient_bytes;
    EXPECT_LT(bytes, before) << recompute;
    before = bytes;
  }
}

// Values that cost little to make again are not alive between forward and backward, and nothing else changes
// but where the weights' gradients that read them stand.
TEST(Compile, CheapValuesEndWithTheForwardPass) {
  recipe::Resolved resolved = recipe::read_recipe(
      {.file = "", .overrides = {"model.family=llama", "model.layers=3", "memory.logits_chunk=64"}});
  model::resolve_model(resolved, 50);
  const model::Model model = model::build_model(resolved.recipe, device::DType::bf16);
  Layout layout{.slice = {2, 16}, .kernels = &kernels::kernels_for(device::Kind::cpu)};
  const Program kept = compile(model, layout);
  layout.recompute.cheap = true;
  const Program program = compile(model, layout);
  check(program, model);
  EXPECT_EQ(program.instructions.size(), kept.instructions.size());
  const std::vector<Lifetime> lives = lifetimes(program);
  int dropped = 0;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const std::string& name = program.buffers[b].name;
    const bool cheap = name.ends_with(" normed") || name.ends_with(" act");
    if (!cheap || program.buffers[b].block == 4) continue;  // the last norm feeds the loss
    ++dropped;
    EXPECT_TRUE(program.instructions[static_cast<size_t>(lives[b].last)].runs(Pass::forward)) << name;
  }
  EXPECT_EQ(dropped, 3 * 3);
}

// Gradients take the memory of activations that the backward pass has done with, and hardly any is lost.
TEST(Place, IsTightForDeepModels) {
  recipe::Resolved resolved =
      recipe::read_recipe({.file = "",
                           .overrides = {"model.family=llama", "model.preset=1b", "data.seq_len=2048",
                                         "memory.logits_chunk=4160"}});
  model::resolve_model(resolved, 50);
  const model::Model model = model::build_model(resolved.recipe, device::DType::bf16);
  for (const char* recompute : {"none", "cheap", "up"}) {
    Layout layout{.slice = {8, 2048},
                  .recompute = parse_recompute(recompute, model),
                  .kernels = &kernels::kernels_for(device::Kind::cpu)};
    Program program = compile(model, layout);
    const MemoryPlan plan = place(program);
    EXPECT_LE(static_cast<double>(plan.transient_bytes), 1.01 * static_cast<double>(plan.live_bytes))
        << recompute;
  }
}

// Faults that a rewrite could make: each must be noticed.
struct Fault {
  const char* name;
  void (*make)(Program&);
};

size_t find(const Program& program, Verb verb, size_t nth = 0) {
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    if (verb_of(program.instructions[n].what) == verb && nth-- == 0) return n;
  }
  return program.instructions.size();
}

void drop(Program& program, size_t n) {
  program.instructions.erase(program.instructions.begin() + static_cast<int64_t>(n));
}

TEST(Check, NoticesEveryFault) {
  const Fault faults[] = {
      {"a forward is missing", [](Program& p) { drop(p, find(p, Verb::forward, 2)); }},
      {"a backward_weight is missing", [](Program& p) { drop(p, find(p, Verb::backward_weight, 1)); }},
      {"a strand sum is missing", [](Program& p) { drop(p, find(p, Verb::sum, 0)); }},
      {"the load is missing", [](Program& p) { drop(p, find(p, Verb::load, 1)); }},
      {"the norm is missing", [](Program& p) { drop(p, find(p, Verb::norm)); }},
      {"a strand's second slice writes",
       [](Program& p) {
         for (Instruction& i : p.instructions) {
           if (i.runs(Pass::backward_weight) && i.slice == 1) i.get<RunSegment>()->accumulate = false;
         }
       }},
      {"a strand's first slice adds",
       [](Program& p) {
         for (Instruction& i : p.instructions) {
           if (i.runs(Pass::backward_weight) && i.slice == 2) i.get<RunSegment>()->accumulate = true;
         }
       }},
      {"slices in the wrong order",
       [](Program& p) {
         for (Instruction& i : p.instructions) {
           if (i.slice == 0 || i.slice == 1) i.slice = 1 - i.slice;
         }
       }},
  };
  recipe::Resolved resolved =
      recipe::read_recipe({.file = "", .overrides = {"model.layers=2", "memory.logits_chunk=64"}});
  model::resolve_model(resolved, 50);
  const model::Model model = model::build_model(resolved.recipe, device::DType::f32);
  const Layout layout{
      .slice = {2, 16}, .slices = 8, .strands = 4, .kernels = &kernels::kernels_for(device::Kind::cpu)};
  ASSERT_NO_THROW(check(compile(model, layout), model));
  for (const Fault& fault : faults) {
    Program program = compile(model, layout);
    fault.make(program);
    EXPECT_THROW(check(program, model), base::Bug) << fault.name;
  }
}

TEST(Check, NoticesAWriteToMemoryThatIsStillNeeded) {
  recipe::Resolved resolved = recipe::read_recipe({.file = "", .overrides = {"model.layers=2"}});
  model::resolve_model(resolved, 50);
  const model::Model model = model::build_model(resolved.recipe, device::DType::f32);
  const Layout layout{
      .slice = {2, 16}, .slices = 4, .strands = 2, .kernels = &kernels::kernels_for(device::Kind::cpu)};
  Program program = compile(model, layout);
  place(program);
  ASSERT_NO_THROW(check(program, model));
  const std::vector<Lifetime> lives = lifetimes(program);
  int tried = 0;
  for (size_t b = 1; b < program.buffers.size(); ++b) {  // onto its neighbour, where both are alive
    Buffer &one = program.buffers[b - 1], &two = program.buffers[b];
    const bool together = lives[b].first <= lives[b - 1].last && lives[b - 1].first <= lives[b].last;
    if (one.persistent || two.persistent || lives[b].first < 0 || lives[b - 1].first < 0 || !together)
      continue;
    if (one.bytes() == 0 || two.bytes() == 0) continue;
    const int64_t kept = two.offset;
    two.offset = one.offset;
    EXPECT_THROW(check(program, model), base::Bug) << one.name << " and " << two.name;
    two.offset = kept;
    ++tried;
  }
  EXPECT_GT(tried, 10);
}

TEST(Recompute, RefusesSegmentsThatDoNotExist) {
  recipe::Resolved resolved = recipe::read_recipe({.file = "", .overrides = {"memory.logits_chunk=64"}});
  model::resolve_model(resolved, 50);
  const model::Model model = model::build_model(resolved.recipe, device::DType::f32);
  EXPECT_THROW(parse_recompute("attention,elbow", model), base::ConfigError);
  EXPECT_THROW(parse_recompute("every-0", model), base::ConfigError);
  EXPECT_EQ(parse_recompute("attention, up", model).segments.size(), 2u);
}

}  // namespace
}  // namespace lockstep::program

// The worlds that compile() makes, walked by the simulator: every layout at once, over random models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/plan/list_key.h"
#include "lockstep/plan/simulate.h"
#include "lockstep/program/check.h"
#include "lockstep/program/nodes.h"
#include "lockstep/program/testing.h"

namespace lockstep::plan {
namespace {

using comm::Axis;
using program::Instruction;
using program::Lane;
using program::Program;
using program::Schedule;

// A layout and its programs, one for each list.
struct Built {
  std::vector<std::string> words;  // of the model
  device::DType type = device::DType::f32;
  model::Parts parts{};
  program::DataRanks data{};
  program::Stages stages{};
  int64_t slices = 4, strands = 4;
  program::Recompute recompute{};

  comm::Mesh mesh;
  std::vector<std::unique_ptr<model::Model>> models;
  std::vector<std::unique_ptr<Program>> programs;
  World world;

  int& size(Axis axis) { return mesh.sizes[static_cast<int>(axis)]; }

  // `each`: a list for every rank, instead of one for those that have the same.
  void build(bool each) {
    size(Axis::tensor) = parts.tensor;
    size(Axis::context) = parts.context;
    size(Axis::shard) = data.shard;
    size(Axis::replica) = data.replicas;
    size(Axis::pipeline) = stages.count;
    program::resolve_nodes(data, strands);
    const Axis cut = data.split() == program::Among::shard ? Axis::shard : Axis::replica;
    mesh.near[static_cast<int>(cut)] = data.near();
    world = world_of(mesh);
    Lists lists = lists_of(mesh, data, strands);
    if (each) {
      lists.first.clear();
      for (int r = 0; r < mesh.world(); ++r) {
        lists.first.push_back(r);
        lists.of[static_cast<size_t>(r)] = r;
      }
    }
    world.program_of = lists.of;
    for (const int rank : lists.first) add(comm::coordinate_of(mesh, rank));
    for (const auto& program : programs) world.programs.push_back(program.get());
  }

 private:
  void add(const comm::Coordinate& at) {
    recipe::Resolved resolved = recipe::read_recipe({.overrides = words});
    model::resolve_model(resolved, 50);
    model::Parts mine = parts;
    mine.tensor_rank = at[Axis::tensor];
    mine.context_rank = at[Axis::context];
    models.push_back(std::make_unique<model::Model>(model::build_model(resolved.recipe, type, mine)));
    const model::Model& model = *models.back();
    program::Layout layout;
    const int64_t length = resolved.recipe.data.seq_len;
    layout.slice = {1, length};
    if (parts.context > 1) {
      layout.slice = parts.heads ? model::SliceShape{1, length / parts.context}
                                 : model::SliceShape{2, length / (2 * parts.context)};
    }
    layout.slices = slices;
    layout.strands = strands;
    layout.ranks = data;
    layout.ranks.replica = at[Axis::replica];
    layout.ranks.shard_rank = at[Axis::shard];
    layout.stages = stages;
    layout.stages.self = at[Axis::pipeline];
    if (stages.count > 1) {  // the same number of layers in each piece, where that can be
      std::vector<double> costs(model.blocks.size(), 1.0);
      costs.front() = costs.back() = 0.01;
      layout.stages.pieces = program::cut_blocks(costs, stages.count * stages.chunks);
    }
    layout.recompute = recompute;
    layout.kernels = &kernels::kernels_for(device::Kind::cpu);
    programs.push_back(std::make_unique<Program>(program::compile(model, layout)));
    program::check(*programs.back(), model);
    program::place(*programs.back());
    program::order(*programs.back());
  }
};

double one(int, const Program&, const Instruction&) { return 1.0; }

// A layout at random; `words` says which.
Built drawn(uint32_t seed, std::string& words) {
  program::Draw draw(seed);
  const auto pick = [&](const std::vector<int>& options) {
    return options[draw.below(static_cast<uint32_t>(options.size()))];
  };
  Built built;
  built.parts.tensor = pick({1, 1, 2, 4});
  built.parts.sequence = built.parts.tensor > 1 && draw.below(2) == 0;
  built.parts.context = built.parts.tensor == 4 ? 1 : pick({1, 1, 2});
  built.parts.heads = draw.below(2) == 0;
  built.data.shard = pick({1, 2, 4});
  built.data.replicas = pick({1, 2, 4});
  built.data.per_node = pick({0, 2, 4});
  if (built.data.per_node > 0 && built.data.width() % built.data.per_node != 0) built.data.per_node = 0;
  built.data.zero = built.data.shard == 1 ? 0 : pick({1, 2, 3});
  built.stages.count = pick({1, 2, 3});
  if (built.stages.count > 1) {
    built.stages.schedule = static_cast<Schedule>(draw.below(4));
    built.stages.chunks = built.stages.schedule == Schedule::interleaved ? 2 : 1;
  }
  built.strands = built.data.width() * pick({1, 2});
  built.slices = built.strands * pick({1, 2, 4});
  if (draw.below(3) == 0) built.recompute.every = 1;
  built.type = draw.below(2) == 0 ? device::DType::f32 : device::DType::bf16;
  built.words = {draw.below(2) == 0 ? "model.family=gpt2" : "model.family=llama", "model.layers=6",
                 "model.hidden=64", "model.heads=8", "data.seq_len=16"};
  if (built.words[0] == "model.family=llama") built.words.push_back("model.kv_heads=4");
  words = fmt::format(
      "seed {}: {} tensor {} sequence {} context {} heads {}, data {}x{} zero {} a node {}, {} of {} stages, "
      "{} slices "
      "in {} "
      "strands",
      seed, built.words[0], built.parts.tensor, built.parts.sequence, built.parts.context, built.parts.heads,
      built.data.replicas, built.data.shard, built.data.zero, built.data.per_node,
      program::name_of(built.stages.schedule), built.stages.count, built.slices, built.strands);
  return built;
}

bool refused(const Built& built) {
  return !program::cannot(built.stages.schedule, built.stages.count, built.stages.chunks,
                          built.slices / built.data.width())
              .empty();
}

TEST(CompiledWorlds, RandomLayoutsAreSound) {
  int walked = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::string words;
    Built built = drawn(seed, words);
    if (refused(built)) continue;
    try {
      built.build(seed % 2 == 0);
    } catch (const std::exception& error) {
      ADD_FAILURE() << words << ": " << error.what();
      continue;
    }
    const Walk walk = simulate(built.world, one, {.links_by_direction = true});
    EXPECT_TRUE(walk.problems.empty()) << words << ": " << walk.problems[0];
    ++walked;
  }
  EXPECT_GT(walked, 80);
}

// Time is what layers take: one unit each for forward, backward_input and backward_weight, or both halves of
// backward at once, as the formulas have it. Everything else takes none.
Price layers_only(int layers, bool halves) {
  return [layers, halves](int, const Program&, const Instruction& i) -> double {
    if (i.block < 1 || i.block > layers || i.segment != 0) return 0;
    if (i.runs(program::Pass::backward_input)) return halves ? 1 : 2;
    return i.runs(program::Pass::forward) || (i.runs(program::Pass::backward_weight) && halves) ? 1 : 0;
  };
}

TEST(CompiledWorlds, BubblesOfSchedulesAreThePublishedOnes) {
  for (const auto& [schedule, chunks] :
       {std::pair{Schedule::gpipe, 1}, {Schedule::one_f_one_b, 1}, {Schedule::interleaved, 2}}) {
    for (const int stages : {2, 4}) {
      for (const int64_t slices : {4, 8}) {
        Built built;
        built.words = {"model.layers=8", "model.hidden=32", "model.heads=2", "data.seq_len=16"};
        built.stages = {.count = stages, .chunks = chunks, .schedule = schedule};
        built.slices = slices;
        built.strands = 1;
        built.build(true);
        const Walk walk = simulate(built.world, layers_only(8, schedule == Schedule::zero_bubble),
                                   {.links_by_direction = true});
        ASSERT_TRUE(walk.problems.empty()) << walk.problems[0];
        const double p = stages, m = static_cast<double>(slices), v = chunks;
        const double idle = schedule == Schedule::zero_bubble ? p - 1 : 3 * (p - 1) / v;
        EXPECT_NEAR(walk.bubble, idle / (3 * m + idle), 1e-9)
            << program::name_of(schedule) << ", " << stages << " stages, " << slices << " slices";
      }
    }
  }
}

// Beside others that work, processors are shared and caches cold: the same work takes longer on them.
bool busy() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 && load > 1.5;
}

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kMostSeconds = 2;
#else
constexpr double kMostSeconds = 60;  // built to look for other things
#endif

// Compiled, checked, placed, ordered and walked, whatever the axes, and also where nothing divides evenly.
TEST(CompiledWorlds, FourThousandRanksTakeLessThanTwoSeconds) {
  struct Row {
    const char* name;
    int tensor, context, shard, replicas, zero, stages;
    Schedule schedule;
    int64_t slices, strands;
    int per_node = 0, layers = 14;
  };
  const Row rows[] = {
      {"126 layers in 16 stages, tensor 8, 16 slices each", 8, 1, 32, 1, 1, 16, Schedule::one_f_one_b, 512,
       32, 8, 126},
      {"126 layers in 16 stages, tensor 8, 64 slices each", 8, 1, 32, 1, 1, 16, Schedule::one_f_one_b, 2048,
       32, 8, 126},
      {"shared by 64, tensor 8, 8 stages", 8, 1, 64, 1, 3, 8, Schedule::one_f_one_b, 512, 64},
      {"copies alone", 1, 1, 1, 4096, 0, 1, Schedule::one_f_one_b, 4096, 4096},
      {"copies, 8 a node", 1, 1, 1, 4096, 0, 1, Schedule::one_f_one_b, 4096, 4096, 8},
      {"moments shared by all", 1, 1, 4096, 1, 1, 1, Schedule::one_f_one_b, 4096, 4096},
      {"weights shared by all", 1, 1, 4096, 1, 3, 1, Schedule::one_f_one_b, 8192, 4096},
      {"eight copies shared by 512, 8 a node", 1, 1, 512, 8, 3, 1, Schedule::one_f_one_b, 4096, 4096, 8},
      {"tensor 8, context 8, shared by 64", 8, 8, 64, 1, 2, 1, Schedule::one_f_one_b, 64, 64},
      {"interleaved, 8 stages", 1, 1, 1, 512, 0, 8, Schedule::interleaved, 4096, 512},
      {"zero-bubble, 16 stages, context 4", 1, 4, 8, 8, 1, 16, Schedule::zero_bubble, 1024, 64},
      {"odd: context 3, 5 stages, 273 copies", 1, 3, 1, 273, 0, 5, Schedule::one_f_one_b, 1500, 300},
      {"odd: 13 copies shared by 15, 7 stages, context 3", 1, 3, 15, 13, 3, 7, Schedule::zero_bubble, 1400,
       200},
      {"more strands than 4095 copies", 1, 1, 1, 4095, 0, 1, Schedule::one_f_one_b, 5000, 5000},
      {"more strands than 45 x 91 ranks that share", 1, 1, 91, 45, 2, 1, Schedule::one_f_one_b, 5000, 5000},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Built built;
    built.words = {fmt::format("model.layers={}", row.layers), "model.hidden=64", "model.heads=8",
                   row.context == 3 ? "data.seq_len=18" : "data.seq_len=16"};
    built.parts.tensor = row.tensor;
    built.parts.context = row.context;
    built.data.shard = row.shard;
    built.data.replicas = row.replicas;
    built.data.zero = row.zero;
    built.data.per_node = row.per_node;
    built.stages = {.count = row.stages,
                    .chunks = row.schedule == Schedule::interleaved ? 2 : 1,
                    .schedule = row.schedule};
    built.slices = row.slices;
    built.strands = row.strands;
    const std::clock_t began = std::clock();  // of this process: others may be at work here
    built.build(false);
    const Walk walk = simulate(built.world, one, {.links_by_direction = true});
    const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    EXPECT_GT(built.world.ranks(), 4000);
    EXPECT_TRUE(walk.problems.empty()) << walk.problems[0];
    EXPECT_LT(seconds, busy() ? 3 * kMostSeconds : kMostSeconds)
        << built.programs.size() << " lists, " << walk.classes.list.size() << " classes";
    RecordProperty(row.name, std::to_string(seconds));
  }
}

}  // namespace
}  // namespace lockstep::plan

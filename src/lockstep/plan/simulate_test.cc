#include "lockstep/plan/simulate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/program/check.h"
#include "lockstep/program/schedule.h"
#include "lockstep/program/testing.h"

namespace lockstep::plan {
namespace {

using program::Among;
using program::Instruction;
using program::Lane;
using program::Program;
using program::Schedule;
using program::Turn;

// --- pipelines written by hand: turns, and messages between them ------------------------------------

struct Pipe {
  Schedule schedule = Schedule::one_f_one_b;
  int stages = 4, chunks = 1;
  int64_t slices = 8;
  bool one_lane = false;      // messages on one lane: what a stage with blocking sends would do
  bool tensor_seams = false;  // a collective behind every forward
};

class StageWriter {
 public:
  StageWriter(const Pipe& pipe, int stage) : pipe_(pipe), stage_(stage) {
    buffer_ = program_.add_buffer({.name = "edge", .shape = {1024}});
  }
  Program write() {
    for (const Turn& turn : turns(pipe_.schedule, pipe_.stages, stage_, pipe_.chunks, pipe_.slices))
      one(turn);
    return std::move(program_);
  }

 private:
  int add(Instruction i) {
    program_.instructions.push_back(std::move(i));
    return static_cast<int>(program_.instructions.size()) - 1;
  }
  int message(bool send, Among among, const Turn& turn, int after) {
    const Lane lane = pipe_.one_lane || send ? Lane::send : Lane::recv;
    Instruction i{.what = send ? program::Operation(program::SendValues{}) : program::RecvValues{},
                  .lane = lane,
                  .slice = static_cast<int>(turn.slice),
                  .among = among};
    (send ? i.reads : i.writes).push_back({buffer_, program::Role::field, "edge"});
    i.moved_bytes = 4096;
    if (after >= 0) i.waits = {after};
    return add(std::move(i));
  }
  void one(const Turn& turn) {
    const int pieces = pipe_.stages * pipe_.chunks, piece = turn.chunk * pipe_.stages + stage_;
    const bool forward = turn.what == Turn::What::forward, weight = turn.what == Turn::What::backward_weight;
    const bool from = !weight && (forward ? piece > 0 : piece + 1 < pieces);
    const bool to = !weight && (forward ? piece + 1 < pieces : piece > 0);
    const int came = from ? message(false, forward ? Among::previous : Among::next, turn, -1) : -1;
    Instruction work{.what = program::RunSegment{forward  ? program::Pass::forward
                                                 : weight ? program::Pass::backward_weight
                                                          : program::Pass::backward_input},
                     .block = piece,
                     .slice = static_cast<int>(turn.slice)};
    work.flops = turn.what == Turn::What::backward ? 2 : 1;  // units of work
    if (came >= 0) work.waits = {came};
    int done = add(std::move(work));
    if (pipe_.tensor_seams && forward) {
      done = add({.what = program::SumValues{},
                  .lane = Lane::seam,
                  .block = piece,
                  .slice = static_cast<int>(turn.slice),
                  .among = Among::tensor,
                  .waits = {done}});
    }
    if (to) message(true, forward ? Among::next : Among::previous, turn, done);
  }
  const Pipe pipe_;
  const int stage_;
  Program program_;
  int buffer_ = -1;
};

// The programs of a pipeline over a mesh, one for each stage.
struct Piped {
  comm::Mesh mesh;
  std::vector<Program> programs;
  World world;
  Piped(const Pipe& pipe, int data = 1, int tensor = 1) {
    mesh.sizes[static_cast<int>(comm::Axis::pipeline)] = pipe.stages;
    mesh.sizes[static_cast<int>(comm::Axis::replica)] = data;
    mesh.sizes[static_cast<int>(comm::Axis::tensor)] = tensor;
    for (int s = 0; s < pipe.stages; ++s) programs.push_back(StageWriter(pipe, s).write());
    world = world_of(mesh);
    for (const Program& program : programs) world.programs.push_back(&program);
    for (int r = 0; r < mesh.world(); ++r) {
      world.program_of[static_cast<size_t>(r)] = comm::coordinate_of(mesh, r)[comm::Axis::pipeline];
    }
  }
};

double unit(int, const Program&, const Instruction& i) { return i.lane == Lane::compute ? i.flops : 0; }

TEST(Simulate, BubblesOfSchedulesAreThePublishedOnes) {
  for (const int stages : {2, 3, 4, 8}) {
    for (const int64_t groups : {1, 2, 3}) {
      for (const auto& [schedule, chunks] : {std::pair{Schedule::gpipe, 1},
                                             {Schedule::one_f_one_b, 1},
                                             {Schedule::interleaved, 2},
                                             {Schedule::interleaved, 3},
                                             {Schedule::zero_bubble, 1}}) {
        const Piped piped({schedule, stages, chunks, groups * stages});
        const Walk walk = simulate(piped.world, unit);
        ASSERT_TRUE(walk.problems.empty()) << walk.problems[0];
        const double m = static_cast<double>(groups * stages), p = stages, v = chunks;
        const double idle = schedule == Schedule::zero_bubble ? p - 1 : 3 * (p - 1) / v;
        EXPECT_NEAR(walk.bubble, idle / (3 * m + idle), 1e-9)
            << name_of(schedule) << ", " << stages << " stages, " << m << " slices";
        EXPECT_NEAR(walk.step_seconds / v, 3 * m + idle, 1e-9);
      }
    }
  }
}

// One lane for what goes out and one for what comes in are enough, whatever the number of slices and even
// where both directions share a link.
TEST(Simulate, BlockingMessagesOnTwoLanesNeverDeadlock) {
  for (int stages = 2; stages <= 6; ++stages) {
    for (int64_t slices = 1; slices <= 14; ++slices) {
      for (const auto& [schedule, chunks] : {std::pair{Schedule::gpipe, 1},
                                             {Schedule::one_f_one_b, 1},
                                             {Schedule::interleaved, 2},
                                             {Schedule::interleaved, 3},
                                             {Schedule::zero_bubble, 1}}) {
        const Piped piped({schedule, stages, chunks, slices});
        const Walk walk = simulate(piped.world, unit);
        EXPECT_TRUE(walk.problems.empty()) << name_of(schedule) << ", " << stages << " stages, " << chunks
                                           << " chunks, " << slices << " slices: " << walk.problems[0];
      }
    }
  }
}

TEST(Simulate, BlockingMessagesOnOneLaneDeadlock) {
  const Piped fine({.schedule = Schedule::gpipe, .stages = 2, .slices = 4, .one_lane = true});
  EXPECT_TRUE(simulate(fine.world, unit).problems.empty());
  const Piped stuck({.schedule = Schedule::one_f_one_b, .stages = 2, .slices = 4, .one_lane = true});
  const Walk walk = simulate(stuck.world, unit);
  ASSERT_EQ(walk.problems.size(), 1u);
  EXPECT_EQ(
      walk.problems[0],
      "deadlock: rank 0 #3 send s1 with the next stage waits for rank 1, which is at #3; rank 1 #3 send s0 "
      "with the previous stage waits for rank 0, which is at #3");
  EXPECT_THROW(check_world(stuck.world), base::Bug);
  EXPECT_NO_THROW(check_world(fine.world));
}

TEST(Simulate, AllRanksGiveTheSameTimesAsTheirClasses) {
  const Piped piped({.schedule = Schedule::zero_bubble, .stages = 4, .slices = 8, .tensor_seams = true}, 3,
                    2);
  const Walk few = simulate(piped.world, unit);
  const Walk all = simulate(piped.world, unit, {.apart = [](int rank) { return rank; }});
  ASSERT_TRUE(few.problems.empty() && all.problems.empty());
  EXPECT_EQ(few.classes.list.size(), 4u);
  EXPECT_EQ(all.classes.list.size(), 24u);
  for (size_t r = 0; r < 24; ++r) {
    const auto& a = few.spans[static_cast<size_t>(few.classes.of[r])];
    const auto& b = all.spans[static_cast<size_t>(all.classes.of[r])];
    for (size_t n = 0; n < a.size(); ++n) EXPECT_EQ(a[n].end, b[n].end) << "rank " << r << " #" << n;
  }
}

TEST(Simulate, ASlowRankSlowsThoseThatMeetIt) {
  const Piped piped({.schedule = Schedule::gpipe, .stages = 1, .slices = 2, .tensor_seams = true}, 2, 2);
  const Rules apart{.apart = [](int rank) { return rank == 3; }};
  const Walk walk = simulate(
      piped.world,
      [](int rank, const Program& p, const Instruction& i) { return unit(rank, p, i) * (rank == 3 ? 5 : 1); },
      apart);
  ASSERT_TRUE(walk.problems.empty());
  EXPECT_EQ(walk.classes.list.size(), 3u);  // its tensor peer, rank 2, is not like ranks 0 and 1 any more
  EXPECT_EQ(walk.classes.of[0], walk.classes.of[1]);
  // Seams of ranks 0 and 1 end with their forward work; rank 2's with rank 3's.
  EXPECT_EQ(walk.spans[static_cast<size_t>(walk.classes.of[0])][1].end, 1);
  EXPECT_EQ(walk.spans[static_cast<size_t>(walk.classes.of[2])][1].end, 5);
}

TEST(Simulate, FourThousandRanksTakeLessThanTwoSeconds) {
  const Piped piped(
      {.schedule = Schedule::interleaved, .stages = 8, .chunks = 4, .slices = 64, .tensor_seams = true}, 64,
      8);
  const auto began = std::chrono::steady_clock::now();
  const Walk walk = simulate(piped.world, unit, {.links_by_direction = true});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  EXPECT_TRUE(walk.problems.empty());
  EXPECT_EQ(piped.world.ranks(), 4096);
  EXPECT_EQ(walk.classes.list.size(), 8u);
  EXPECT_LT(seconds, 2);
}

// --- faults -------------------------------------------------------------------------------------------

TEST(Simulate, FaultsAreNamed) {
  struct Fault {
    const char* name;
    std::function<void(std::vector<Program>&)> make;
    const char* words;
  };
  const auto first = [](Program& program, program::Verb verb) -> Instruction& {
    for (Instruction& i : program.instructions) {
      if (program::verb_of(i.what) == verb) return i;
    }
    throw base::Bug("none");
  };
  const std::vector<Fault> faults{
      {"a recv is missing",
       [](auto& p) {
         auto& list = p[1].instructions;
         for (size_t n = list.size(); n-- > 0;) {
           if (!receives(list[n])) continue;
           for (Instruction& i : list) std::erase(i.waits, static_cast<int>(n));
           list[n] = {.what = program::ReleaseWeights{}};
           return;
         }
       },
       "never arrives"},
      {"other bytes", [&](auto& p) { first(p[0], program::Verb::send).moved_bytes = 32; },
       "32 bytes are sent, but 4096 are received"},
      {"another slice", [&](auto& p) { first(p[0], program::Verb::send).slice = 5; }, "slice 5"},
      {"another direction", [&](auto& p) { first(p[1], program::Verb::recv).among = Among::next; }, ""},
      {"a circle of waits",
       [](auto& p) { p[0].instructions[0].waits = {static_cast<int>(p[0].instructions.size()) - 1}; },
       "deadlock"},
  };
  for (const Fault& fault : faults) {
    Piped piped({.schedule = Schedule::gpipe, .stages = 2, .slices = 3});
    fault.make(piped.programs);
    const Walk walk = simulate(piped.world, unit);
    ASSERT_FALSE(walk.problems.empty()) << fault.name;
    EXPECT_NE(walk.problems[0].find(fault.words), std::string::npos)
        << fault.name << ": " << walk.problems[0];
  }
}

// Two tensor ranks whose lists differ in the order of what they launch on two lanes.
TEST(Simulate, OneOrderOfLaunchesForAllLanes) {
  const Instruction gather{
      .what = program::GatherTokens{}, .lane = Lane::gather, .block = 1, .among = Among::tensor};
  const Instruction seam{
      .what = program::SumValues{}, .lane = Lane::seam, .block = 0, .among = Among::tensor};
  Program a, b;
  a.instructions = {gather, seam};
  b.instructions = {seam, gather};
  comm::Mesh mesh;
  mesh.sizes[static_cast<int>(comm::Axis::tensor)] = 2;
  World world = world_of(mesh);
  world.programs = {&a, &b};
  world.program_of = {0, 1};
  const Walk walk = simulate(world, unit);
  ASSERT_EQ(walk.problems.size(), 1u);
  EXPECT_NE(walk.problems[0].find("issue collectives in incompatible orders"), std::string::npos)
      << walk.problems[0];
  world.program_of = {0, 0};
  EXPECT_TRUE(simulate(world, unit).problems.empty());
}

// --- real programs ------------------------------------------------------------------------------------

// All data ranks of a random layout: what compile() gives meets, in one order, without deadlock.
TEST(Simulate, CompiledDataRanksAreSound) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    program::Draw draw(seed);
    const int replicas = 1 + static_cast<int>(draw.below(3)), shard = 1 + static_cast<int>(draw.below(3));
    const int zero = shard == 1 ? 0 : 1 + static_cast<int>(draw.below(3));
    program::Case drawn = program::case_of({"model.layers=" + std::to_string(1 + draw.below(3)),
                                            "model.hidden=32", "model.heads=2", "data.seq_len=8"},
                                           draw.below(2) == 0 ? device::DType::f32 : device::DType::bf16);
    const int width = replicas * shard;
    drawn.layout.strands = width + static_cast<int64_t>(draw.below(5));
    drawn.layout.slices = drawn.layout.strands * (1 + draw.below(2));
    drawn.layout.ranks = {.replicas = replicas, .shard = shard, .zero = zero};
    drawn.layout.ranks.bucket_bytes = draw.below(2) == 0 ? 1 : 1 << 20;
    comm::Mesh mesh;
    mesh.sizes[static_cast<int>(comm::Axis::shard)] = shard;
    mesh.sizes[static_cast<int>(comm::Axis::replica)] = replicas;
    World world = world_of(mesh);
    std::vector<std::unique_ptr<Program>> programs;
    for (int r = 0; r < width; ++r) {
      drawn.layout.ranks.replica = r / shard;
      drawn.layout.ranks.shard_rank = r % shard;
      programs.push_back(std::make_unique<Program>(program::compile(*drawn.model, drawn.layout)));
      program::place(*programs.back());
      program::order(*programs.back());
      world.programs.push_back(programs.back().get());
      world.program_of[static_cast<size_t>(r)] = r;
    }
    const Walk walk = simulate(world, [](int, const auto&, const auto&) { return 1.0; });
    EXPECT_TRUE(walk.problems.empty()) << "seed " << seed << ", zero " << zero << " on " << replicas << "x"
                                       << shard << ": " << walk.problems[0];
    EXPECT_GT(walk.step_seconds, 0);
  }
}

}  // namespace
}  // namespace lockstep::plan

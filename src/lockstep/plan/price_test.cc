#include "lockstep/plan/price.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

using program::Among;
using program::Instruction;
using program::Program;

const Machine kMachine{.name = "round numbers",
                       .flops_fp32 = 1e12,
                       .flops_half = 4e12,
                       .reached = 0.5,
                       .memory_bytes_per_second = 1e10,
                       .memory_bytes = 1 << 30,
                       .launch_seconds = 0,
                       .inside = {1e9, 0},
                       .between = {1e8, 0},
                       .ranks_per_node = 4};

struct Bytes {
  Program program;
  int add(double bytes, bool share = false) {
    return program.add_buffer(
        {.dtype = device::DType::u8, .shape = {static_cast<int64_t>(bytes)}, .sharded = share});
  }
};

// Seconds a gigabyte at one gigabyte a second: the textbook's rings.
TEST(Price, CollectivesAreRings) {
  struct Row {
    const char* name;
    program::Operation what;
    double in, out;
    bool share;
    double seconds;
  };
  for (const Row& row :
       std::vector<Row>{{"all-gather", program::GatherTokens{}, 0.25e9, 1e9, false, 0.75},
                        {"all-reduce", program::SumValues{}, 1e9, 1e9, false, 1.5},
                        {"reduce-scatter", program::ScatterTokens{}, 1e9, 0.25e9, false, 0.75},
                        {"reduce to shards", program::ReduceGradients{}, 1e9, 0.3e9, true, 0.75},
                        {"all-to-all", program::ExchangeHeads{}, 1e9, 1e9, false, 0.75},
                        {"a hop of a ring", program::ShiftRing{}, 1e9, 1e9, false, 1},
                        {"send", program::SendValues{}, 1e9, 0, false, 1},
                        {"recv", program::RecvValues{}, 0, 1e9, false, 1}}) {
    Bytes bytes;
    Instruction i{.what = row.what, .among = Among::tensor};
    if (is_message(i)) i.moved_bytes = static_cast<int64_t>(row.in + row.out);
    if (row.in > 0) i.reads.push_back({bytes.add(row.in), program::Role::in});
    if (row.out > 0) i.writes.push_back({bytes.add(row.out, row.share), program::Role::out});
    EXPECT_NEAR(seconds_of(kMachine, {.width = 4}, bytes.program, i), row.seconds, 1e-9) << row.name;
  }
}

// Two nodes of four ranks: inside, parts of everything go to their owners; across goes a fourth, there and
// back.
TEST(Price, ASumByNodesMovesPieces) {
  Bytes bytes;
  bytes.program.ranks.replicas = 8;
  bytes.program.ranks.per_node = 4;
  const int sum = bytes.add(1e9);
  Instruction i{.what = program::ReduceGradients{},
                .among = Among::intra_node,
                .reads = {{sum, program::Role::node}},
                .writes = {{sum, program::Role::sum}}};
  EXPECT_NEAR(seconds_of(kMachine, {.width = 4}, bytes.program, i), 0.75, 1e-9);
  i.among = Among::inter_node;
  EXPECT_NEAR(seconds_of(kMachine, {.width = 2}, bytes.program, i), 0.25, 1e-9);
}

// Eight ranks in nodes of four: two of each shard group share a node and use their networks together.
TEST(Price, GroupsThatCrossNodesUseTheirNodesNetwork) {
  Bytes bytes;
  const int whole = bytes.add(1e6);
  const Instruction gather{.what = program::GatherWeights{},
                           .lane = program::Lane::gather,
                           .among = Among::shard,
                           .writes = {{whole, program::Role::whole}}};
  const Instruction seam{.what = program::GatherTokens{},
                         .lane = program::Lane::seam,
                         .among = Among::tensor,
                         .writes = {{whole, program::Role::whole}}};
  bytes.program.instructions = {gather, seam};
  comm::Mesh mesh;
  mesh.sizes[static_cast<int>(comm::Axis::tensor)] = 2;
  mesh.sizes[static_cast<int>(comm::Axis::shard)] = 4;
  World world = world_of(mesh);
  world.programs = {&bytes.program};
  const Price price = price_on(kMachine, world);
  EXPECT_DOUBLE_EQ(price(0, bytes.program, seam), 1e6 / 2 / 1e9);
  EXPECT_DOUBLE_EQ(price(0, bytes.program, gather), 1e6 * 0.75 / (2 * 1e8));
  const auto apart = apart_on(kMachine, world);
  EXPECT_EQ(apart(0), apart(5));  // both cross with their shard ranks only
  EXPECT_TRUE(simulate(world, price, {.apart = apart}).problems.empty());
}

// Small messages to many ranks take the tree, large ones the ring.
TEST(Price, TheFasterOfRingAndTree) {
  Machine far = kMachine;
  far.inside.latency_seconds = 1e-6, far.between.latency_seconds = 1e-5;
  const auto seconds = [&](double bytes_in_all) {
    Bytes bytes;
    Instruction i{.what = program::GatherTokens{}, .among = Among::tensor};
    i.writes.push_back({bytes.add(bytes_in_all), program::Role::out});
    return seconds_of(far, {.width = 64, .nodes = 16}, bytes.program, i);
  };
  EXPECT_NEAR(seconds(64), 2 * 6 * 1e-5, 1e-6);                                  // up and down
  EXPECT_NEAR(seconds(1e9), 1e9 * 63 / 64 / 4e8 + 48 * 1e-6 + 16 * 1e-5, 1e-9);  // around
}

}  // namespace
}  // namespace lockstep::plan

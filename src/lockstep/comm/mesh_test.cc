#include "lockstep/comm/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

Mesh random_mesh(std::mt19937_64& random) {
  Mesh mesh;
  for (int& size : mesh.sizes) size = 1 + static_cast<int>(random() % 4);
  return mesh;
}

TEST(Mesh, TheDocumentedOrder) {
  const Mesh mesh{{2, 1, 2, 2, 2}};  // tensor 2, shard 2, replica 2, pipeline 2
  EXPECT_EQ(mesh.world(), 16);
  EXPECT_EQ(mesh.data(), 4);
  const Coordinate five = coordinate_of(mesh, 5);
  EXPECT_EQ(five[Axis::tensor], 1);
  EXPECT_EQ(five[Axis::shard], 0);
  EXPECT_EQ(five[Axis::replica], 1);
  EXPECT_EQ(five[Axis::pipeline], 0);
  EXPECT_EQ(five.data(mesh), 2);
  EXPECT_EQ(members(mesh, 5, {Axis::tensor}), (std::vector<int>{4, 5}));
  EXPECT_EQ(members(mesh, 5, {Axis::shard}), (std::vector<int>{5, 7}));
  EXPECT_EQ(members(mesh, 5, {Axis::replica, Axis::shard}), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(members(mesh, 5, {Axis::pipeline}), (std::vector<int>{5, 13}));
  EXPECT_EQ(members(mesh, 5, {}), (std::vector<int>{5}));
}

TEST(Mesh, RanksAndCoordinatesAreOneToOne) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const Mesh mesh = random_mesh(random);
    for (int rank = 0; rank < mesh.world(); ++rank) {
      EXPECT_EQ(rank_of(mesh, coordinate_of(mesh, rank)), rank);
    }
    EXPECT_THROW(coordinate_of(mesh, mesh.world()), base::Bug);
    EXPECT_THROW(coordinate_of(mesh, -1), base::Bug);
  }
}

TEST(Mesh, GroupsPartitionTheWorldAndAgree) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const Mesh mesh = random_mesh(random);
    std::vector<Axis> axes;
    for (int axis = 0; axis < kAxes; ++axis) {
      if (random() % 2) axes.push_back(static_cast<Axis>(axis));
    }
    std::shuffle(axes.begin(), axes.end(), random);
    int expected = 1;
    for (const Axis axis : axes) expected *= mesh.size(axis);
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const std::vector<int> group = members(mesh, rank, axes);
      EXPECT_EQ(static_cast<int>(group.size()), expected);
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
      EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
      for (const int other : group) {
        EXPECT_EQ(members(mesh, other, axes), group);
        for (int axis = 0; axis < kAxes; ++axis) {
          const bool free = std::find(axes.begin(), axes.end(), static_cast<Axis>(axis)) != axes.end();
          EXPECT_TRUE(free || coordinate_of(mesh, other).at[axis] == coordinate_of(mesh, rank).at[axis]);
        }
      }
    }
  }
}

// Nodes cut one axis: two ranks of the shard group on each of two nodes, tensor ranks beside each.
TEST(Mesh, TellsNeighboursFromSeatsOfOtherNodes) {
  Mesh mesh{.sizes = {2, 1, 4, 2, 1}};
  mesh.near[static_cast<int>(Axis::shard)] = 2;
  EXPECT_EQ(members_intra_node(mesh, 0), (std::vector<int>{0, 2}));
  EXPECT_EQ(members_inter_node(mesh, 0), (std::vector<int>{0, 4}));
  EXPECT_EQ(members_intra_node(mesh, 7), (std::vector<int>{5, 7}));
  EXPECT_EQ(members_inter_node(mesh, 7), (std::vector<int>{3, 7}));
  EXPECT_EQ(members_intra_node(mesh, 8), (std::vector<int>{8, 10}));
  // The two together are the group: every member is one step inside a node and one across away.
  for (int rank = 0; rank < mesh.world(); ++rank) {
    std::vector<int> reached;
    for (const int far : members_inter_node(mesh, rank)) {
      for (const int near : members_intra_node(mesh, far)) reached.push_back(near);
    }
    std::sort(reached.begin(), reached.end());
    EXPECT_EQ(reached, members(mesh, rank, {Axis::shard})) << rank;
  }
}

}  // namespace
}  // namespace lockstep::comm

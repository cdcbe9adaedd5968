// The mesh: where a rank stands among data x shard x context x tensor x pipeline ranks.
//
// One documented order: tensor changes fastest, so that it stays inside a node, then context, shard, replica
// (data is replica x shard), and pipeline slowest. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::comm {

enum class Axis : uint8_t { tensor, context, shard, replica, pipeline };
constexpr int kAxes = 5;

struct Mesh {
  int sizes[kAxes] = {1, 1, 1, 1, 1};  // by Axis
  // Of the ranks along one axis, how many neighbours stand on each node; 1: the axis is not cut by nodes.
  int near[kAxes] = {1, 1, 1, 1, 1};
  int size(Axis axis) const { return sizes[static_cast<int>(axis)]; }
  int world() const;
  int data() const { return size(Axis::shard) * size(Axis::replica); }
};

struct Coordinate {
  int at[kAxes] = {0, 0, 0, 0, 0};
  int operator[](Axis axis) const { return at[static_cast<int>(axis)]; }
  // Among the data ranks: replica x shard, shard fastest.
  int data(const Mesh& mesh) const {
    return (*this)[Axis::replica] * mesh.size(Axis::shard) + (*this)[Axis::shard];
  }
};

Coordinate coordinate_of(const Mesh& mesh, int rank);
int rank_of(const Mesh& mesh, const Coordinate& coordinate);
// World ranks that differ from `rank` at most on these axes, in mesh order: the members of its group.
std::vector<int> members(const Mesh& mesh, int rank, const std::vector<Axis>& axes);
// Of those along the axes that nodes cut: the ones on this rank's node, and the ones with its seat on each.
std::vector<int> members_intra_node(const Mesh& mesh, int rank);
std::vector<int> members_inter_node(const Mesh& mesh, int rank);

}  // namespace lockstep::comm

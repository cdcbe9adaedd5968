#include "lockstep/comm/mesh.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::comm {

int Mesh::world() const {
  int ranks = 1;
  for (const int size : sizes) ranks *= size;
  return ranks;
}

Coordinate coordinate_of(const Mesh& mesh, int rank) {
  LS_ASSERT(rank >= 0 && rank < mesh.world());
  Coordinate coordinate;
  for (int axis = 0; axis < kAxes; ++axis) {
    coordinate.at[axis] = rank % mesh.sizes[axis];
    rank /= mesh.sizes[axis];
  }
  return coordinate;
}

int rank_of(const Mesh& mesh, const Coordinate& coordinate) {
  int rank = 0;
  for (int axis = kAxes - 1; axis >= 0; --axis) {
    LS_ASSERT(coordinate.at[axis] >= 0 && coordinate.at[axis] < mesh.sizes[axis]);
    rank = rank * mesh.sizes[axis] + coordinate.at[axis];
  }
  return rank;
}

std::vector<int> members(const Mesh& mesh, int rank, const std::vector<Axis>& axes) {
  Coordinate at = coordinate_of(mesh, rank);
  for (const Axis axis : axes) at.at[static_cast<int>(axis)] = 0;
  std::vector<int> ranks{rank_of(mesh, at)};
  int stride = 1;
  for (int axis = 0; axis < kAxes;
       ++axis) {  // fastest first: what is there so far, moved along the next axis
    if (std::find(axes.begin(), axes.end(), static_cast<Axis>(axis)) != axes.end()) {
      const size_t count = ranks.size();
      for (int step = 1; step < mesh.sizes[axis]; ++step) {
        for (size_t i = 0; i < count; ++i) ranks.push_back(ranks[i] + step * stride);
      }
    }
    stride *= mesh.sizes[axis];
  }
  return ranks;
}

namespace {

std::vector<int> members_by_node(const Mesh& mesh, int rank, bool same_node) {
  std::vector<Axis> axes;
  for (int axis = 0; axis < kAxes; ++axis) {
    if (mesh.near[axis] > 1) axes.push_back(static_cast<Axis>(axis));
  }
  const Coordinate self = coordinate_of(mesh, rank);
  std::vector<int> ranks = members(mesh, rank, axes);
  std::erase_if(ranks, [&](int other) {
    const Coordinate there = coordinate_of(mesh, other);
    return std::any_of(axes.begin(), axes.end(), [&](Axis axis) {
      const int near = mesh.near[static_cast<int>(axis)];
      return same_node ? there[axis] / near != self[axis] / near : there[axis] % near != self[axis] % near;
    });
  });
  return ranks;
}

}  // namespace

std::vector<int> members_intra_node(const Mesh& mesh, int rank) { return members_by_node(mesh, rank, true); }
std::vector<int> members_inter_node(const Mesh& mesh, int rank) { return members_by_node(mesh, rank, false); }

}  // namespace lockstep::comm

#include "lockstep/plan/world.h"

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::plan {

using comm::Axis;
using program::Among;

namespace {

constexpr size_t kAmong = static_cast<size_t>(Among::previous) + 1;

bool is_peer(Among among) { return among == Among::next || among == Among::previous; }

// Along which axes ranks meet.
std::vector<Axis> axes_of(Among among) {
  switch (among) {
    case Among::shard:
      return {Axis::shard};
    case Among::replica:
      return {Axis::replica};
    case Among::tensor:
      return {Axis::tensor};
    case Among::context:
      return {Axis::context};
    case Among::copy:
      return {Axis::tensor, Axis::shard, Axis::pipeline};
    case Among::all:
      return {Axis::tensor, Axis::context, Axis::shard, Axis::replica, Axis::pipeline};
    default:
      return {Axis::shard, Axis::replica};
  }
}

// The words that some list of the world names.
std::vector<Among> named(const World& world) {
  std::set<Among> seen;
  for (const program::Program* program : world.programs) {
    for (const program::Instruction& i : program->instructions) {
      if (i.among != Among::none) seen.insert(i.among);
    }
  }
  return {seen.begin(), seen.end()};
}

// Who meets whom on one word, for all ranks: the number of its group, or the peer.
struct Meets {
  Among among = Among::none;
  std::vector<int> group_of;             // [rank]
  std::vector<std::vector<int>> groups;  // [group]
};

Meets meets_of(const World& world, Among among) {
  Meets meets{
      .among = among, .group_of = std::vector<int>(static_cast<size_t>(world.ranks()), -1), .groups = {}};
  for (int r = 0; r < world.ranks(); ++r) {
    int& own = meets.group_of[static_cast<size_t>(r)];
    if (own >= 0) continue;
    own = static_cast<int>(meets.groups.size());
    if (is_peer(among)) {
      meets.groups.push_back({world.peer(r, among)});
      continue;
    }
    meets.groups.push_back(world.members(r, among));
    for (const int member : meets.groups.back()) meets.group_of[static_cast<size_t>(member)] = own;
  }
  return meets;
}

// Which classes meet in each group, as a number: groups in which the same classes meet have the same.
std::vector<int> classes_in(const Meets& meets, const std::vector<int>& class_of) {
  std::vector<int> numbers;
  std::map<std::vector<int>, int> number;
  std::vector<int> classes;
  for (const std::vector<int>& group : meets.groups) {
    classes.clear();
    for (const int member : group) classes.push_back(class_of[static_cast<size_t>(member)]);
    std::sort(classes.begin(), classes.end());
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
    numbers.push_back(number.try_emplace(classes, static_cast<int>(number.size())).first->second);
  }
  return numbers;
}

// Splits classes whose ranks see different classes; true when there are more than before.
bool split(const std::vector<Meets>& all, std::vector<int>& class_of) {
  std::vector<std::vector<int>> seen;
  for (const Meets& meets : all) seen.push_back(classes_in(meets, class_of));
  std::map<std::vector<int>, int> number;
  std::vector<int> next(class_of.size()), key;
  for (size_t r = 0; r < class_of.size(); ++r) {
    key.assign(1, class_of[r]);
    for (size_t k = 0; k < all.size(); ++k) key.push_back(seen[k][static_cast<size_t>(all[k].group_of[r])]);
    next[r] = number.try_emplace(key, static_cast<int>(number.size())).first->second;
  }
  const bool more = static_cast<int>(number.size()) > *std::max_element(class_of.begin(), class_of.end()) + 1;
  class_of = std::move(next);
  return more;
}

RankClass describe(const World& world, const std::vector<Meets>& all, const std::vector<int>& class_of,
                   int rank) {
  RankClass made{.first = rank,
                 .program = world.program_of[static_cast<size_t>(rank)],
                 .meets = std::vector<std::vector<int>>(kAmong),
                 .group = std::vector<Among>(kAmong, Among::none),
                 .width = std::vector<int>(kAmong, 1)};
  for (const Meets& meets : all) {
    const std::vector<int>& group =
        meets.groups[static_cast<size_t>(meets.group_of[static_cast<size_t>(rank)])];
    std::set<int> classes;
    for (const int member : group) classes.insert(class_of[static_cast<size_t>(member)]);
    made.meets[static_cast<size_t>(meets.among)] = {classes.begin(), classes.end()};
    made.group[static_cast<size_t>(meets.among)] = meets.among;
    made.width[static_cast<size_t>(meets.among)] = static_cast<int>(group.size());
    for (const Meets& before : all) {
      if (before.among == meets.among) break;
      if (is_peer(before.among) || is_peer(meets.among)) continue;
      if (before.groups[static_cast<size_t>(before.group_of[static_cast<size_t>(rank)])] != group) continue;
      made.group[static_cast<size_t>(meets.among)] = before.among;
      break;
    }
  }
  return made;
}

}  // namespace

std::vector<int> members_of(const comm::Mesh& mesh, int rank, Among among) {
  if (among == Among::intra_node) return comm::members_intra_node(mesh, rank);
  if (among == Among::inter_node) return comm::members_inter_node(mesh, rank);
  return comm::members(mesh, rank, axes_of(among));
}

bool is_message(const program::Instruction& i) { return sends(i) || receives(i); }

bool sends(const program::Instruction& i) {
  return i.is<program::SendValues, program::SendTied, program::SendWeights>();
}

bool receives(const program::Instruction& i) {
  return i.is<program::RecvValues, program::RecvTied, program::RecvWeights>();
}

World world_of(const comm::Mesh& mesh) {
  World world;
  world.program_of.assign(static_cast<size_t>(mesh.world()), 0);
  world.members = [mesh](int rank, Among among) { return members_of(mesh, rank, among); };
  world.peer = [mesh](int rank, Among among) {
    comm::Coordinate at = comm::coordinate_of(mesh, rank);
    int& stage = at.at[static_cast<int>(Axis::pipeline)];
    const int stages = mesh.size(Axis::pipeline);
    stage = (stage + (among == Among::next ? 1 : stages - 1)) % stages;
    return comm::rank_of(mesh, at);
  };
  return world;
}

Classes classes_of(const World& world, const std::function<int(int rank)>& apart) {
  LS_ASSERT(world.ranks() > 0 && !world.programs.empty());
  std::vector<Meets> all;
  for (const Among among : named(world)) all.push_back(meets_of(world, among));
  Classes classes;
  std::map<std::pair<int, int>, int> number;
  for (int r = 0; r < world.ranks(); ++r) {
    const std::pair<int, int> key{world.program_of[static_cast<size_t>(r)], apart ? apart(r) : 0};
    classes.of.push_back(number.try_emplace(key, static_cast<int>(number.size())).first->second);
  }
  while (split(all, classes.of)) {
  }
  for (int r = 0; r < world.ranks(); ++r) {
    const int of = classes.of[static_cast<size_t>(r)];
    if (of == static_cast<int>(classes.list.size()))
      classes.list.push_back(describe(world, all, classes.of, r));
    ++classes.list[static_cast<size_t>(of)].size;
  }
  return classes;
}

}  // namespace lockstep::plan

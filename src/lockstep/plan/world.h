// A world to plan for: the step programs of all of its ranks, and who meets whom. No rank of it need exist.
//
// Programs name their peers by words (the shard ranks, the next stage), so ranks with the same list share
// one. classes_of() goes further and says which ranks behave alike in time: two ranks are of one class when
// they have the same list and price, and, for each word in it, meet ranks of the same classes. Then whatever
// happens to one happens to all others of its class at the same moment (by induction over what they do: a
// meeting begins when the last of its classes has come, and both see the same classes), so one rank of each
// class stands for thousands. Where ranks are not alike the classes are split until they are; in the worst
// case every rank is a class of its own, and the answer is the same, only later.
#pragma once

#include <functional>
#include <vector>

#include "lockstep/comm/mesh.h"
#include "lockstep/program/program.h"

namespace lockstep::plan {

struct World {
  std::vector<const program::Program*> programs;  // different lists; not owned
  std::vector<int> program_of;                    // [rank]
  // All that meet on `among`, `rank` too, in the order of the group.
  std::function<std::vector<int>(int rank, program::Among among)> members;
  // Who is at the other end: among is next or previous.
  std::function<int(int rank, program::Among among)> peer;
  int ranks() const { return static_cast<int>(program_of.size()); }
};

// Members and peers as a mesh has them; programs are still to be filled in.
World world_of(const comm::Mesh& mesh);
// The ranks that meet on a word, in the order of the group.
std::vector<int> members_of(const comm::Mesh& mesh, int rank, program::Among among);
bool is_message(const program::Instruction& instruction);  // a send or a recv
bool sends(const program::Instruction& instruction);
bool receives(const program::Instruction& instruction);

struct RankClass {
  int first = 0;     // the rank that stands for all
  int64_t size = 0;  // how many they are
  int program = 0;
  // By Among, for those that the list names: the classes that meet, sorted; for a message, the one at the
  // other end.
  std::vector<std::vector<int>> meets;
  // By Among: the first one with the same members (they share one group on each lane), and how many meet.
  std::vector<program::Among> group;
  std::vector<int> width;
};

struct Classes {
  std::vector<RankClass> list;
  std::vector<int> of;  // [rank]
};

// `apart(rank)`: ranks with different numbers are never put in one class; where a price depends on more than
// the list, such as the node on which a rank stands, it says so here.
Classes classes_of(const World& world, const std::function<int(int rank)>& apart = {});

}  // namespace lockstep::plan

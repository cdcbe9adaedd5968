// What a rank is doing, as a few facts read from the marks it left: enough to judge who waits for whom.
//
// Times are ages in seconds, so that facts of several nodes can be laid side by side without a common clock.
// Facts travel between launchers as JSON; what comes in is bounds-checked, because it comes from outside.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/ring.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::watch {

// A group of ranks as one of its members sees it.
struct GroupFacts {
  std::string name;          // the same on every member
  std::vector<int> members;  // world ranks
  bool enqueues = false;     // calls run on a device, as NCCL's do, and are entered when it comes to them
  int64_t entered = -1;      // the newest call that this rank has entered, counted from 0
  bool inside = false;       // and has not left
  double since = 0;          // seconds ago it entered
  std::string call;          // "reduce b7"; "all_reduce" where it belongs to no instruction
  uint16_t op = 0;           // with `bytes`: tells two different calls apart
  int64_t bytes = 0;
};

struct RankFacts {
  int rank = 0, pid = 0;
  std::string host;
  bool alive = true;
  bool stopped = false;        // by SIGSTOP, a debugger or its cgroup
  bool traced = false;         // by a debugger
  bool frozen = false;         // by its cgroup
  double stopped_seconds = 0;  // by SIGSTOP, as far as its launcher has seen
  bool in_kernel = false;      // it cannot even be killed: a disk or a file server does not answer
  double writer_seconds =
      0;  // for which a thread beside the main one stands so, as far as its launcher has seen
  watch::Phase phase = watch::Phase::start;  // start also stands for "has left no mark yet"
  double phase_seconds = 0;                  // in it
  double usual_phase_seconds = 0;            // what that kind of phase took before; 0: not known
  int64_t step = 0;
  std::vector<GroupFacts> groups;
  std::string last;             // the newest instruction
  std::string reached;          // the newest that its device has ended, where that is known
  bool last_open = false;       // it has begun and has not ended
  double last_seconds = 0;      // since the newest mark of any kind
  double usual_seconds = 0;     // what `last`, or what comes behind it, usually takes; 0: not known
  double usual_step = 0;        // seconds from step to step; 0: not known
  double usual_save = 0;        // of a save; 0: there was none yet
  std::optional<double> waits;  // of the time lately, the part inside collectives
  int64_t memory = 0;           // resident bytes of the process
};

// The names behind the numbers in a ring, as watch::Recorder::describe wrote them.
struct Names {
  int pid = 0;                     // of the process that wrote them
  std::string host;                // where it runs; empty: an older version wrote it
  std::vector<GroupFacts> groups;  // name, members and enqueues only
  std::vector<std::string> instructions;
  std::vector<std::string> lanes;  // of each instruction; empty: an older version wrote it
};
Names read_names(const std::string& text);  // what is not as it should be is left out

// A mark is a collective's, or an instruction's around it.
bool is_collective(const base::RingEntry& mark);
// "backward_weight b2 up s0", and the lane it runs on. Marks of another program than the training step, such
// as an evaluation's, are named by what they tell themselves, and their lane is empty.
struct MarkTitle {
  std::string text, lane;
};
MarkTitle title_of(const base::RingEntry& mark, const Names& names);

// The part of the time between the first and the last of these marks that was spent inside collectives.
std::optional<double> waiting_share(const std::vector<base::RingEntry>& marks);

// From marks to facts: a pure function. Entries oldest first; `now_ns` on the clock of the marks.
RankFacts digest(const std::vector<base::RingEntry>& marks, const std::vector<base::RingEntry>& phases,
                 const Names& names, int64_t now_ns);

// As of somebody who has been away until so many seconds ago: no wait is longer.
void limit_waits(RankFacts& facts, double seconds);

// Of a rank of this host, from its files in `folder`/trace. Files of another process than `pid`, or none at
// all, mean that it has not left a mark yet: `age` is then how long it has been starting. `names` are read
// again only when they are another process's.
RankFacts read_facts(const std::string& folder, int rank, int pid, double age, Names& names);

// Threads of a process, but the main one, that stand in the kernel (state D), each with the number of times
// that it has run so far: the same number a second later means that it has not moved.
std::map<int, int64_t> blocked_threads(int pid, const std::string& proc = "/proc");

nlohmann::json to_json(const RankFacts& facts);
RankFacts facts_from_json(const nlohmann::json& json);  // nlohmann::json::exception when it is none

}  // namespace lockstep::watch

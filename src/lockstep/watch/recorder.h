// What a rank leaves for others to read, while it works and after it has died: three small files in trace/.
//
//     Recorder recorder("runs/first", rank);        // rank-R.ring: its instructions and collectives
//     recorder.enter(Phase::train, 0);              // rank-R.phase: what it is at, as a ring of its own
//     recorder.describe(recorded_names(session));   // rank-R.json: the names behind the numbers
//
// Training does not depend on it: where nothing can be written, problem() says why and nothing is recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/ring.h"

namespace lockstep::watch {

// Each has its own budget of time before a rank counts as frozen.
enum class Phase : uint16_t { start, train, evaluate, save, end };
const char* name_of(Phase phase);

std::string ring_path(const std::string& folder, int rank);
std::string phase_path(const std::string& folder, int rank);
std::string names_path(const std::string& folder, int rank);

// The names behind a ring's numbers.
struct RecordedNames {
  struct Group {
    std::string name, engine;
    std::vector<int> members;  // world ranks
    bool enqueues = false;     // its calls run on a device
  };
  std::vector<std::string> instructions;
  std::vector<std::string> lanes;  // of each instruction
  std::vector<Group> groups;
};

class Recorder {
 public:
  Recorder(const std::string& folder, int rank);
  // Records nothing: what ranks before this one left there is still worth reading.
  explicit Recorder(int rank) : rank_(rank) {}
  const std::string& problem() const { return problem_; }
  base::RingWriter* ring() const { return ring_.get(); }  // null: nothing is recorded
  void enter(Phase phase, int64_t step);                  // the one before it has ended
  void describe(const RecordedNames& names);

 private:
  std::string folder_, problem_;
  int rank_;
  std::unique_ptr<base::RingWriter> ring_, phases_;
  uint64_t ticket_ = 0;
  bool entered_ = false;
};

}  // namespace lockstep::watch

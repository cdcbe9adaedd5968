// The CPU's lanes: one thread for each lane beside the compute lane, which is the caller's own.
//
// A step is a list of calls, each on a lane, some waiting for calls of other lanes. Lanes run their calls in
// list order; a call begins when what it waits for is done. An error on any lane ends the step and is thrown
// to the caller, who need not wait until another lane's collective has run into its time-out; the destructor
// does.
//
// Where the compute lane could do nothing else meanwhile (tensor ranks sum what the next segment reads), it
// carries out the other lane's call itself: handing it to another thread and back costs more than many a sum.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::run {

// Of each instruction: whether it stands between two neighbours of the compute lane, behind the first of
// which it begins and for which the second waits. One at most between the same two: a send and a receive must
// run beside each other, or two pipeline stages would wait for each other.
std::vector<bool> taken_along(const program::Program& program);

class Lanes {
 public:
  // `call(n)` carries out instruction n. The program must outlive the lanes.
  Lanes(const program::Program& program, std::function<void(size_t)> call);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  void run();  // one step: returns when every lane is done

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::run

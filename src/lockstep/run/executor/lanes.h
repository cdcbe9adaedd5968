// The CPU's lanes: one thread for each lane beside the compute lane, which is the caller's own.
//
// A step is a list of calls, each on a lane, some waiting for calls of other lanes. Lanes run their calls in
// list order; a call begins when what it waits for is done. An error on any lane ends the step and is thrown
// to the caller, who need not wait until another lane's collective has run into its time-out; the destructor
// does.
#pragma once

#include <functional>
#include <memory>

#include "lockstep/program/program.h"

namespace lockstep::run {

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

// The guard of a node: a small process between the launcher and its ranks that sees to it that nothing is
// left running.
//
//     Guard guard(30s);                       // forks it; do this before any thread is started
//     const pid_t rank = guard.start(process);
//     poll(guard.descriptor()) ... guard.take()   // who ended, and how
//     guard.end_all(30s);                     // asks everything below it to end, later insists
//
// The guard is the ranks' parent and inherits their orphans (a subreaper), so that it finds every descendant:
// grandchildren, daemons, processes in sessions of their own. It is tied to the launcher by a socket. When
// the launcher goes, even by kill -9, or closes the socket, the guard ends them all: SIGTERM, after the grace
// SIGKILL. When the guard itself is killed, its direct children die with it, and the rest falls to the
// process above it, its warden, which does nothing but wait for that: so nothing is left when launcher and
// guard are killed together.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/launch/options.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::launch {

struct Ended {
  pid_t pid = 0;
  int status = 0;           // of waitpid
  int64_t unix_micros = 0;  // when the guard saw it
};

struct GuardNews {
  std::vector<Ended> ended;  // children and inherited orphans
  bool all_gone = false;     // end_all() is done: nothing runs below the guard
  bool lost = false;         // the guard was killed; what was below it has been ended
};

class Guard {
 public:
  explicit Guard(Duration grace);  // the grace when the launcher is lost. IoError 532: no more processes
  ~Guard();                        // ends everything and waits until that is done
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  pid_t start(const Process& process);  // IoError 532
  void signal(pid_t pid, int number);   // to this child only
  void end_all(Duration grace);         // returns at once; again with less grace: sooner. 0: SIGKILL now
  void leave_behind();  // the destructor does not wait: the guard ends what cannot be ended now when it can
  void remove_at_end(const std::string& folder);  // when the launcher has gone, however that came
  int descriptor() const { return socket_; }      // readable when there is news
  GuardNews take();
  pid_t pid() const { return pid_; }

 private:
  bool receive(bool wait);
  void lose();

  int socket_ = -1;
  pid_t warden_ = 0, pid_ = 0, started_ = 0;
  std::vector<pid_t> before_;  // children of this process from before it: not its business
  int start_error_ = 0;
  bool has_started_ = false, left_behind_ = false;
  GuardNews news_;
};

}  // namespace lockstep::launch

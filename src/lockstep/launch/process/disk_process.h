// A process that touches the run's disk for the launcher.
//
//     DiskProcess disk;                                   // forks it; do this before any thread is started
//     disk.call(append, {.words = {text}, .descriptor = log});   // waits for its answer
//
// A thread that the kernel holds because a disk does not respond keeps its whole process from ending. So the
// launcher's own threads only wait for an answer, which nothing can prevent from being interrupted, and a
// launcher that is told to end does. The process ends with the launcher, or as soon as its disk lets it.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>
#include <vector>

namespace lockstep::launch {

struct DiskCall {
  std::vector<std::string> words = {};
  int descriptor = -1;  // borrowed
  int caller = -1;      // in the process: the socket to the launcher

  bool abandoned() const;  // the launcher has gone meanwhile
};
// What went wrong; empty: nothing. A plain function: the process is a fork, where it has the same address.
using DiskWork = std::string (*)(const DiskCall& call);

class DiskProcess {
 public:
  DiskProcess();
  ~DiskProcess();  // when no call is under way
  DiskProcess(const DiskProcess&) = delete;
  DiskProcess& operator=(const DiskProcess&) = delete;

  // From any thread; one call after the other. Where there is no such process (none could be forked, or it
  // was killed), the thread itself does the work.
  std::string call(DiskWork work, const DiskCall& call);
  pid_t pid() const { return pid_; }

 private:
  bool ask(DiskWork work, const DiskCall& call, std::string& answer) const;

  std::mutex mutex_;
  int socket_ = -1;
  pid_t pid_ = -1;
};

}  // namespace lockstep::launch

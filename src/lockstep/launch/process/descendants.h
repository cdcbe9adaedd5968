// All processes below this one, found in /proc: children, grandchildren, and those that went their own way
// with setsid or a double fork, because a subreaper inherits them.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

// Makes orphans below this process its own children.
void become_subreaper();

// Every living descendant of `root`, zombies left out; none where /proc is missing or of another PID
// namespace.
std::vector<pid_t> descendants_of(pid_t root);

// From the text of /proc/PID/stat. The name in it may hold blanks and brackets. pid 0: not such a line.
struct ProcessLine {
  pid_t pid = 0, parent = 0;
  char state = '?';
};
ProcessLine parse_process_line(std::string_view stat);

// Sends the signal to every descendant of this process but `spared`; returns how many there are.
int signal_descendants(int signal, const std::vector<pid_t>& spared = {});

}  // namespace lockstep::launch

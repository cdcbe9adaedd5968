// A child process, as plain data: what it runs, with which environment and streams. And how it ended, in
// words.
//
// exec_process() is what a freshly forked child calls; it never returns. describe_ending() says "exit code 3"
// or "killed by SIGSEGV (11)".
#pragma once

#include <signal.h>

#include <string>
#include <vector>

namespace lockstep::launch {

struct Process {
  std::vector<std::string> words;        // [0] is the path
  std::vector<std::string> environment;  // "NAME=value", all of it
  std::vector<int> cpus;                 // bound to these; empty: as the launcher is
  // Borrowed descriptors. `keep` and `memory` stay open in the child under these numbers.
  int in = -1, out = -1, err = -1, keep = -1, memory = -1;
};
constexpr int kKeptDescriptor = 3, kMemoryDescriptor = 4;

// Words, environment and cpus as bytes, and back. Throws Bug on bytes that it did not write.
std::string pack(const Process& process);
Process unpack(const std::string& bytes);

std::string pack_words(const std::vector<std::string>& words);
std::vector<std::string> unpack_words(const std::string& bytes);

// In a freshly forked process that stays this program: everything that ties it to the terminal, to signals or
// to the launcher's files is let go, but the socket, whose new number is returned.
int let_go(int socket, const char* name);

// In the child: its own session, default signals, the streams, the processors, then exec. On failure exits
// 127 (no such program), 126, or 1 (it may not run on these processors) after a sentence on its standard
// error.
[[noreturn]] void exec_process(const Process& process);

// The number of "SIGTERM", "TERM" or "15"; 0 if there is none.
int signal_number(const std::string& name);
std::string signal_name(int number);           // "SIGTERM", "SIGRTMIN+1"
std::string describe_ending(int wait_status);  // of waitpid
int exit_code_of(int wait_status);             // as a shell says it: 128 + signal
int worse_code(int a, int b);  // of two ranks: 75 (preempted and saved) before failures, and these before 0

// The environment of this process.
std::vector<std::string> current_environment();
void set_variable(std::vector<std::string>& environment, const std::string& name, const std::string& value);
bool has_variable(const std::vector<std::string>& environment, const std::string& name);
void remove_variable(std::vector<std::string>& environment, const std::string& name);

}  // namespace lockstep::launch

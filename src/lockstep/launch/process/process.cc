#include "lockstep/launch/process/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/device/topology/affinity.h"

namespace lockstep::launch {

namespace {

void put(std::string& bytes, const std::vector<std::string>& texts) {
  const auto put_size = [&](uint64_t size) {
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  };
  put_size(texts.size());
  for (const std::string& text : texts) {
    put_size(text.size());
    bytes += text;
  }
}

std::vector<std::string> take(const std::string& bytes, size_t& at) {
  const auto take_size = [&] {
    uint64_t size = 0;
    LS_ASSERT(at + sizeof size <= bytes.size());
    std::memcpy(&size, bytes.data() + at, sizeof size);
    at += sizeof size;
    LS_ASSERT(size <= bytes.size());
    return size;
  };
  std::vector<std::string> texts(take_size());
  for (std::string& text : texts) {
    const uint64_t size = take_size();
    LS_ASSERT(at + size <= bytes.size());
    text = bytes.substr(at, size);
    at += size;
  }
  return texts;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

void become_default() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // What the launcher ignores for itself, and what a shell's `&` made ignored though the launcher passes it
  // on. nohup's SIGHUP stays ignored.
  for (const int number : {SIGPIPE, SIGXFSZ, SIGCHLD, SIGINT, SIGQUIT, SIGTERM}) ::signal(number, SIG_DFL);
}

// Moves the five descriptors to 0..4. First out of the way of each other, then into place.
void place_descriptors(const Process& process) {
  const int wanted[] = {process.in, process.out, process.err, process.keep, process.memory};
  int safe[5];
  for (int k = 0; k < 5; ++k) safe[k] = wanted[k] < 0 ? -1 : ::fcntl(wanted[k], F_DUPFD, 10);
  for (int k = 0; k < 5; ++k) {
    if (safe[k] >= 0) ::dup2(safe[k], k);
    if (safe[k] < 0 && k >= kKeptDescriptor) ::close(k);
  }
  ::close_range(kMemoryDescriptor + 1, ~0u, 0);
}

[[noreturn]] void give_up(const std::string& sentence, int code) {
  const std::string line = fmt::format("lockstep: {}\n", sentence);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(code);
}

}  // namespace

std::string pack(const Process& process) {
  std::string bytes;
  put(bytes, process.words);
  put(bytes, process.environment);
  std::vector<std::string> cpus;
  for (const int cpu : process.cpus) cpus.push_back(std::to_string(cpu));
  put(bytes, cpus);
  return bytes;
}

std::string pack_words(const std::vector<std::string>& words) {
  std::string bytes;
  put(bytes, words);
  return bytes;
}

std::vector<std::string> unpack_words(const std::string& bytes) {
  size_t at = 0;
  return take(bytes, at);
}

int let_go(int socket, const char* name) {
  ::setsid();
  ::prctl(PR_SET_NAME, name, 0, 0, 0);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int k = 0; k < 3; ++k) ::dup2(nothing, k);
  const int kept = ::fcntl(socket, F_DUPFD_CLOEXEC, 4);  // it may be below 3
  ::dup3(kept, 3, O_CLOEXEC);
  ::close_range(4, ~0u, 0);
  return 3;
}

Process unpack(const std::string& bytes) {
  Process process;
  size_t at = 0;
  process.words = take(bytes, at);
  process.environment = take(bytes, at);
  for (const std::string& cpu : take(bytes, at)) process.cpus.push_back(base::parse_number<int>(cpu).value());
  return process;
}

void exec_process(const Process& process) {
  const std::vector<char*> words = pointers(process.words), environment = pointers(process.environment);
  ::setsid();  // a terminal's Ctrl-C reaches the launcher only, which passes it on
  become_default();
  place_descriptors(process);
  try {
    device::bind_this_thread(process.cpus);
  } catch (const base::Error& error) {
    give_up(error.what(), error.exit_code());
  }
  ::execve(words[0], words.data(), environment.data());
  const int error = errno;
  give_up(fmt::format("{} cannot be run: {}", process.words[0], std::strerror(error)),
          error == ENOENT ? 127 : 126);
}

int signal_number(const std::string& name) {
  if (const std::optional<int> number = base::parse_number<int>(name))
    return *number > 0 && *number < NSIG ? *number : 0;
  const std::string whole = name.starts_with("SIG") ? name : "SIG" + name;
  for (int number = 1; number < NSIG; ++number) {
    if (whole == signal_name(number)) return number;
  }
  return 0;
}

std::string signal_name(int number) {
  if (const char* abbreviation = ::sigabbrev_np(number)) return std::string("SIG") + abbreviation;
  if (number < SIGRTMIN || number > SIGRTMAX) return fmt::format("signal {}", number);
  return number == SIGRTMIN ? "SIGRTMIN" : fmt::format("SIGRTMIN+{}", number - SIGRTMIN);
}

std::string describe_ending(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("killed by {} ({}){}", signal_name(WTERMSIG(status)), WTERMSIG(status),
                       WCOREDUMP(status) ? ", core dumped" : "");
  }
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

int worse_code(int a, int b) { return a == 75 || b == 75 ? 75 : std::max(a, b); }

std::vector<std::string> current_environment() {
  std::vector<std::string> all;
  for (char** one = environ; *one; ++one) all.emplace_back(*one);
  return all;
}

void remove_variable(std::vector<std::string>& environment, const std::string& name) {
  std::erase_if(environment, [&](const std::string& one) { return one.starts_with(name + "="); });
}

void set_variable(std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  remove_variable(environment, name);
  environment.push_back(name + "=" + value);
}

bool has_variable(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& one) { return one.starts_with(name + "="); });
}

}  // namespace lockstep::launch

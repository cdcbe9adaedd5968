#include "lockstep/jobs/client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::jobs {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostBytes = size_t{64} << 20;  // of an answer

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) read = ends[0], write = ends[1];
  }
  ~Pipe() { close_read(), close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() { close_end(read); }
  void close_write() { close_end(write); }

 private:
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// In a process group of its own: a client that starts helpers is ended with them.
int spawn(const Command& command, const Pipe& in, const Pipe& out, const Pipe& err, pid_t& child) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, in.read, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  const int error = ::posix_spawnp(&child, command.words.front().c_str(), &actions, &attributes,
                                   pointers(command.words).data(), ::environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

void read_some(int file, std::string& text, bool& open) {
  char piece[65536];
  const ssize_t got = ::read(file, piece, sizeof piece);
  if (got > 0 && text.size() < kMostBytes) text.append(piece, static_cast<size_t>(got));
  if (got == 0) open = false;
}

// The end does not block: a client that writes before it has read all would wait for us, and we for it.
void write_some(Pipe& in, const std::string& input, size_t& written) {
  const ssize_t put = ::write(in.write, input.data() + written, input.size() - written);
  if (put > 0) written += static_cast<size_t>(put);
  const bool gone = put < 0 && errno != EAGAIN && errno != EINTR;
  if (gone || written == input.size()) in.close_write();
}

// Gives input and takes output until the client has closed both; false: patience ended first.
bool talk(Pipe& in, const Pipe& out, const Pipe& err, const Command& command, Answer& answer) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(command.patience_s);
  size_t written = 0;
  bool out_open = true, err_open = true;
  ::fcntl(in.write, F_SETFL, O_NONBLOCK);
  if (command.input.empty()) in.close_write();
  while (out_open || err_open) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd ends[] = {
        {out_open ? out.read : -1, POLLIN, 0}, {err_open ? err.read : -1, POLLIN, 0}, {in.write, POLLOUT, 0}};
    if (::poll(ends, 3, static_cast<int>(std::min<int64_t>(left, 1000))) <= 0) continue;
    if (ends[0].revents) read_some(out.read, answer.output, out_open);
    if (ends[1].revents) read_some(err.read, answer.error, err_open);
    if (ends[2].revents) write_some(in, command.input, written);
  }
  return true;
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

std::string Answer::complaint(const Command& command) const {
  const bool wrapped = command.words.front() == "env" && command.words.size() > 2;  // env NAME=value PROGRAM
  const std::string& name = command.words[wrapped ? 2 : 0];
  if (timed_out) return fmt::format("{} did not answer within {} s", name, command.patience_s);
  if (code == 127 && error.empty()) return fmt::format("{} is not installed here, or not in PATH", name);
  std::string said;
  for (const std::string& line : base::split_lines(error.empty() ? output : error)) {
    if (base::trimmed(line).empty()) continue;
    said += (said.empty() ? "" : "; ") + std::string(base::trimmed(line));
  }
  if (said.empty()) return fmt::format("{} ended with exit code {} and said nothing", name, code);
  return fmt::format("{} says: {}", name, base::quoted(said, 600));
}

Answer ProcessClient::run(const Command& command) {
  Pipe in, out, err;
  Answer answer;
  pid_t child = 0;
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);  // a client that does not read its input
  if (spawn(command, in, out, err, child) != 0) {
    answer.code = 127;
  } else {
    in.close_read(), out.close_write(), err.close_write();
    answer.timed_out = !talk(in, out, err, command, answer);
    if (answer.timed_out) ::kill(-child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    answer.code = code_of(status);
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  return answer;
}

int ProcessClient::attach(const Command& command) {
  pid_t child = 0;
  if (::posix_spawnp(&child, command.words.front().c_str(), nullptr, nullptr, pointers(command.words).data(),
                     ::environ) != 0)
    return 127;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return code_of(status);
}

bool is_in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  std::istringstream folders(base::environment("PATH").value_or("/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("_@%+=:,./-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

std::vector<std::string> split_shell_words(const std::string& line) {
  std::vector<std::string> words;
  bool inside = false;  // a word
  char quote = 0;
  for (size_t k = 0; k < line.size(); ++k) {
    const char c = line[k];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      inside = false;
      continue;
    }
    if (!std::exchange(inside, true)) words.emplace_back();
    if (c == quote)
      quote = 0;
    else if (quote == 0 && (c == '\'' || c == '"'))
      quote = c;
    else if (c == '\\' && quote != '\'' && k + 1 < line.size())
      words.back() += line[++k];
    else
      words.back() += c;
  }
  if (quote != 0 || words.empty() || words.front().empty())
    throw base::ConfigError(
        721, fmt::format("{} is not a program with its arguments; example: \"train.py --epochs 10\"",
                         base::quoted(line)));
  return words;
}

}  // namespace lockstep::jobs

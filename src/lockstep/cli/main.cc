// The program's door: finds the command, runs it, and turns what it throws into one sentence and an exit
// code.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(Arguments&);
};

constexpr Command kCommands[] = {
    {"init", "Write a commented recipe to start from.", init_command},
    {"train", "Train from a recipe; run it again to go on where it stopped.", train_command},
    {"launch", "Run any program on many ranks, with torchrun's flags.", launch_command},
    {"drill", "Rehearse faults on a recipe: kill, freeze, corrupt, fill the disk; compare the bits.",
     drill_command},
    {"tune", "Time every slice size and recomputation that fits, and name the fastest.", tune_command},
    {"verify", "Train a small version of a recipe in many layouts and compare them with one rank.",
     verify_command},
    {"generate", "Continue a text with a trained model.", generate_command},
    {"eval", "Print the loss of a checkpoint or a Hugging Face folder on any data.", eval_command},
    {"export", "Write a checkpoint's weights as a Hugging Face folder.", export_command},
    {"inspect", "Show what a checkpoint holds, and check every bit of it.", inspect_command},
    {"explain", "Say what a key, an error, a recipe, a step program or its memory is.", explain_command},
    {"schema", "Print the recipe's JSON Schema, for editors.", schema_command},
    {"doctor", "Check whether this machine is fit to train.", doctor_command},
    {"topo", "Show how this machine is wired, and what NCCL makes of it.", topo_command},
    {"bench", "Measure a training step, checkpoints, or collectives in nccl-tests' columns.", bench_command},
};

std::string help() {
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  terminal::Table commands({}), examples({});
  for (const Command& command : kCommands) commands.add({std::string("  ") + command.name, command.summary});
  for (const auto& [line, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"  lockstep doctor", "is this machine fit?"},
           {"  lockstep train", "train a small model in a minute, nothing to download"},
           {"  lockstep init first.toml", "a recipe with every key explained"},
           {"  lockstep train first.toml optim.lr=1e-3 run.name=second",
            "one key changed, in a run of its own"},
           {"  lockstep explain optim.lr", "what a key means"},
           {"  lockstep explain LS0107", "what an error means"},
       }) {
    examples.add({line, what});
  }
  const auto lines = [&](const char* text) { return base::hanging(text, terminal.width, 2); };
  return fmt::format(
      "lockstep COMMAND [...]\n\n{}\n\n{}\n{}\n{}\n{}\n{}\n{}\n",
      lines("Trains deep networks on one device or many: the same recipe and seed give the same bits."),
      terminal.paint("commands", terminal::Colour::bold), commands.to_text(terminal),
      terminal.paint("examples", terminal::Colour::bold), examples.to_text(terminal),
      lines("`lockstep COMMAND --help` says more. Every command that reports takes --json."),
      lines("exit codes: 0 done, 1 failed, 2 refused, 3 data or checkpoint unusable, 75 preempted and saved: "
            "run again"));
}

int run(const std::vector<std::string>& words) {
  const std::string name = words.empty() ? "" : words[0];
  if (name == "--version" || name == "-V" || name == "version") {
    print("{}", version_line());
    return 0;
  }
  if (name.empty()) {
    std::fputs(help().c_str(), stderr);
    return 2;
  }
  // `lockstep help train` is `lockstep train --help`.
  const bool asks_help = name == "help" || name == "--help" || name == "-h";
  if (asks_help && words.size() == 1) {
    std::fputs(help().c_str(), stdout);
    return 0;
  }
  const std::string& wanted = asks_help ? words[1] : name;
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.push_back(command.name);
    if (wanted != command.name) continue;
    Arguments arguments(command.name, command.summary,
                        asks_help ? std::vector<std::string>{"--help"}
                                  : std::vector<std::string>(words.begin() + 1, words.end()));
    return command.run(arguments);
  }
  const std::string near = base::nearest_word(wanted, names);
  throw base::ConfigError(108, fmt::format("{} is not a command; {}", base::quoted(wanted),
                                           near.empty() ? "commands are " + base::join(names, ", ")
                                                        : "did you mean `lockstep " + near + "`?"));
}

void complain(const std::string& text) {
  const terminal::Terminal terminal = terminal::terminal_of(STDERR_FILENO);
  std::fflush(stdout);  // what was said before comes first
  const std::string label = "lockstep:";
  std::string shown = label + " " + text;
  if (terminal.is_tty) shown = base::hanging(shown, terminal.width - 1, 2);
  remark("{}{}\n", terminal.paint(label, terminal::Colour::red), shown.substr(label.size()));
}

// Asked of the pipe itself: the error of an earlier write is no longer known at the end.
bool reader_has_gone() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

// Standard output that could not be written is an error, unless nobody reads (`lockstep ... | head`).
void finish_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  const int error = errno;
  if (error == EPIPE || reader_has_gone()) return;
  throw base::IoError(802, fmt::format("standard output cannot be written: {}",
                                       error ? std::strerror(error) : "an earlier write failed"));
}

// What the standard library throws for the machine's reasons: threads that it may not start, paths that lead
// nowhere because /proc is not mounted or the working folder was removed.
base::Error explain(const std::system_error& error) {
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    std::error_code gone;
    std::filesystem::current_path(gone);
    const std::string path = file->path1().string();
    return base::IoError(
        820,
        gone ? "the folder that this command was started in is not there any more: change to another one"
        : path.starts_with("/proc")
            ? fmt::format("{} cannot be read: mount /proc, as every container runtime does", path)
            : fmt::format("{} cannot be used: {}", path.empty() ? "a path" : path, error.code().message()));
  }
  return base::IoError(819,
                       fmt::format("this process may not start another thread ({}): raise `ulimit -u`, or "
                                   "pids.max of its control group; run.threads=1 needs fewest",
                                   error.code().message()));
}

int run_and_explain_failure(const std::vector<std::string>& words) {
  try {
    const int code = run(words);
    finish_output();
    return code;
  } catch (const base::Error& error) {
    complain(error.what());
    return error.exit_code();
  } catch (const base::Bug& bug) {
    complain(fmt::format("this is a bug in Lockstep {}; please report it with the lines below\n{}",
                         base::kVersion, bug.what()));
  } catch (const std::system_error& error) {
    const base::Error explained = explain(error);
    complain(explained.what());
    return explained.exit_code();
  } catch (const std::bad_alloc&) {
    complain("this machine's memory is used up; `lockstep doctor` shows how much there is");
  } catch (const std::exception& error) {
    complain(fmt::format("this is a bug in Lockstep {}; please report it: {}", base::kVersion, error.what()));
  }
  return 1;
}

}  // namespace
}  // namespace lockstep::cli

// All is written and closed by now. What is left are LibTorch's static destructors, a fifteenth of a second
// for each of a run's processes; leak checkers need them.
[[noreturn]] static void leave(int code) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(code);
#else
  std::fflush(nullptr);
  std::_Exit(code);
#endif
}

// Who is started with standard streams closed would write its words into the first file or socket it opens.
static void open_standard_streams() {
  int opened = 0;
  do opened = ::open("/dev/null", O_RDWR);
  while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened > STDERR_FILENO) ::close(opened);
}

int main(int count, char** words) {
  open_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away must not end a training run
  ::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of the write, with a sentence
  leave(lockstep::cli::run_and_explain_failure({words + (count > 0), words + count}));
}

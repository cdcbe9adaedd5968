// The program's door: finds the command, runs it, and turns what it throws into one sentence and an exit
// code.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/ship/commands.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"
#include "lockstep/train.h"

namespace lockstep::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(Arguments&);
};

constexpr Command kCommands[] = {
    {"init", "Write a commented recipe to start from.", init_command},
    {"tokenize", "Turn text into tokens and back, make token files, learn a tokenizer.", tokenize_command},
    {"data", "Show samples as the model sees them, and what is trained on.", data_command},
    {"train", "Train from a recipe; run it again to resume.", train_command},
    {"launch", "Run any program on many ranks, with torchrun's flags.", launch_command},
    {"drill", "Inject faults into a run (kill, freeze, corrupt, fill the disk) and compare the bits.",
     drill_command},
    {"submit", "Run a recipe elsewhere: Slurm, Kubernetes, a cloud, hosts reached by ssh.", submit_command},
    {"jobs", "List submitted runs and their states, and what may have been left behind.", jobs_command},
    {"logs", "Show or follow the output of a submitted run.", logs_command},
    {"why", "Say what limits a run and what would help, or why it waits or has failed.", why_command},
    {"stop", "Stop a submitted run and remove everything that was made for it.", stop_command},
    {"ssh", "Open a shell where a submitted run is running.", ssh_command},
    {"targets", "List the places runs can be submitted to, and check them.", targets_command},
    {"plan", "Forecast time, memory and cost of a recipe on machines you do not have yet.", plan_command},
    {"prices", "List the machines of the catalogue and what they cost.", prices_command},
    {"shop", "Find the cheapest and the fastest machines to rent for a run, by date, purse and quota.",
     shop_command},
    {"budget", "Show what runs have spent of run.budget, or write the alert of a cloud.", budget_command},
    {"receipt", "Compare what runs were forecast to take with what they took.", receipt_command},
    {"tune", "Time every slice size and recompute setting that fits, and report the fastest.", tune_command},
    {"verify", "Train a scaled-down recipe in many layouts and compare them with one rank.", verify_command},
    {"generate", "Continue a text with a trained model.", generate_command},
    {"eval", "Print the loss of a checkpoint or a Hugging Face folder on any data.", eval_command},
    {"export", "Write a checkpoint's weights as a Hugging Face folder.", export_command},
    {"inspect", "Show what a checkpoint contains, and verify every bit.", inspect_command},
    {"top", "Show what every rank of a run on this host is doing.", top_command},
    {"attach", "Show the live line of a run that trains in the background.", attach_command},
    {"profile", "Profile a few steps of a run in flight, without stopping it.", profile_command},
    {"notify", "Tell a webhook (Slack's form) of a run's failures, hangs, spikes and end.", notify_command},
    {"replay", "Compute any step of a run again on one device, and look inside.", replay_command},
    {"audit", "Check a run's log against its chain and against steps that are replayed.", audit_command},
    {"dash", "Show every run in a page of your browser, live: curves, differences, timelines.", dash_command},
    {"plot", "Draw the curves of runs, in the terminal or as an SVG picture.", plot_command},
    {"metrics",
     "Write a run's metrics for other programs: CSV, TensorBoard, Prometheus; also while it trains.",
     metrics_command},
    {"explain", "Explain a key, an error, a recipe, a step program or its memory.", explain_command},
    {"schema", "Print the recipe's JSON Schema, for editors.", schema_command},
    {"completions", "Print what bash, zsh or fish need to complete commands, options, keys and values.",
     completions_command},
    {"man", "Print or write manual pages.", man_command},
    {"bundle", "Write the program and all it needs as one file, for machines without a network.",
     bundle_command},
    {"image", "Write a Dockerfile for this program, and build it where an engine is.", image_command},
    {"doctor", "Check whether this machine is ready to train.", doctor_command},
    {"topo", "Show this machine's topology and how NCCL will use it.", topo_command},
    {"bench", "Benchmark training steps, checkpoints, or collectives (in nccl-tests' columns).",
     bench_command},
};

std::string help() {
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  terminal::Table commands({}), examples({});
  for (const Command& command : kCommands) commands.add({std::string("  ") + command.name, command.summary});
  for (const auto& [line, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"  lockstep doctor", "is this machine ready?"},
           {"  lockstep train", "train a small model in a minute, no download needed"},
           {"  lockstep init first.toml", "a recipe with every key explained"},
           {"  lockstep train first.toml optim.lr=1e-3 run.name=second",
            "one key changed, in its own run folder"},
           {"  lockstep explain optim.lr", "what a key means"},
           {"  lockstep explain LS0107", "what an error means"},
       }) {
    examples.add({line, what});
  }
  const auto lines = [&](const char* text) { return base::hanging(text, terminal.width, 2); };
  return fmt::format(
      "lockstep COMMAND [...]\n\n{}\n\n{}\n{}\n{}\n{}\n{}\n{}\n",
      lines("Train deep networks on one device or many: the same recipe and seed give the same bits."),
      terminal.paint("commands", terminal::Colour::bold), commands.to_text(terminal),
      terminal.paint("examples", terminal::Colour::bold), examples.to_text(terminal),
      lines("See `lockstep COMMAND --help`. Every command that reports supports --json."),
      lines("exit codes: 0 done, 1 failed, 2 rejected, 3 unusable data or checkpoint, 75 preempted and "
            "saved: run again"));
}

// Where find_package(lockstep) finds its files: `cmake -Dlockstep_DIR=$(lockstep --cmake-dir)`.
std::string cmake_folder() {
  const std::filesystem::path prefix =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  for (const char* lib : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
    const std::filesystem::path folder = prefix / lib / "cmake" / "lockstep";
    if (std::filesystem::exists(folder / "lockstep-config.cmake")) return folder.string();
  }
  throw base::ConfigError(
      109, fmt::format("--cmake-dir: there are no CMake files beside {}: use an installed program (pip, "
                       "or cmake --install build --prefix DIR)",
                       prefix.string()));
}

int run(const std::vector<std::string>& words) {
  const std::string name = words.empty() ? "" : words[0];
  if (name == "--version" || name == "-V" || name == "version") {
    print("{}", version_line());
    return 0;
  }
  if (name == "--cmake-dir") {
    print("{}\n", cmake_folder());
    return 0;
  }
  if (name == "--complete") return complete({words.begin() + 1, words.end()});
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
  throw base::IoError(802, fmt::format("cannot write to standard output: {}",
                                       error ? std::strerror(error) : "an earlier write failed"));
}

}  // namespace

std::vector<Description> describe_commands() {
  std::vector<Description> all;
  for (const Command& command : kCommands) {
    Arguments arguments(command.name, command.summary, {});
    arguments.only_describe();
    command.run(arguments);
    all.push_back(arguments.description());
  }
  return all;
}

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

int main(int count, char** words) {
  const auto body = [&] {
    const int code = lockstep::cli::run({words + (count > 0), words + count});
    lockstep::cli::finish_output();
    return code;
  };
  leave(lockstep::run_main(body, lockstep::cli::complain));
}

// lockstep notify: watches a run from outside and tells a webhook what happens to it.
#include "lockstep/cli/see/notify.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/process_birth.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/see/report_progress.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/http/post.h"
#include "lockstep/see/notify.h"
#include "lockstep/see/ranks_now.h"

namespace lockstep::cli {

namespace {

constexpr std::chrono::milliseconds kLook{500}, kAnswer{10'000};
constexpr int kTries = 3;

http::Url address_of(const std::string& where) {
  const auto url = http::parse_url(see::webhook_address(where));
  if (!url)
    throw base::ConfigError(
        766,
        fmt::format("what {} has is no http:// or https:// address; nothing of it is shown here", where));
  return *url;
}

// What cannot be sent is said and left: messages that pile up help nobody.
bool send(const http::Url& url, const see::Notice& notice) {
  http::PostResult result;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::seconds(attempt));
    result = http::post_json(url, see::slack_body(notice), kAnswer);
    if (result.problem.empty()) return true;
    if (result.status >= 400 && result.status < 500) break;  // it would say no again
  }
  remark("notify: the webhook was not told \"{}\": {}\n", notice.text, result.problem);
  return false;
}

bool lives(int64_t process, const base::ProcessBirth& birth, const std::string& folder) {
  return process > 0 ? base::still_lives(process, birth) : see::lives_here(folder);
}

[[noreturn]] void become(std::vector<std::string> words, int log) {
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO), ::dup2(log, STDOUT_FILENO), ::dup2(log, STDERR_FILENO);
  for (int number = 3; number < 256; ++number) ::close(number);  // a pipe that somebody waits for to end
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  ::_exit(127);
}

}  // namespace

void start_notifier(const std::string& where, const std::string& folder) {
  static_cast<void>(address_of(where));  // a mistake is told now
  start_beside(folder, {"--to", where});
}

int start_beside(const std::string& folder, const std::vector<std::string>& more) {
  std::error_code error;
  std::filesystem::create_directories(folder + "/logs", error);
  const int log =
      ::open((folder + "/logs/notify.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  // SIGTERM waits until that process knows what to do with it (take_signals).
  sigset_t ending, before;
  ::sigemptyset(&ending), ::sigaddset(&ending, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &ending, &before);
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<std::string> words{"lockstep", "notify", folder, "--of", std::to_string(::getppid())};
    words.insert(words.end(), more.begin(), more.end());
    become(std::move(words), log);
  }
  const int error_number = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (log >= 0) ::close(log);
  if (child < 0)
    throw base::IoError(802, fmt::format("cannot start a process: {}", std::strerror(error_number)));
  return child;
}

void take_signals() {
  sigset_t ending;
  ::sigemptyset(&ending), ::sigaddset(&ending, SIGTERM);
  ::pthread_sigmask(SIG_UNBLOCK, &ending, nullptr);
}

int notify_command(Arguments& arguments) {
  std::string run, where, kinds, test;
  int64_t process = 0;
  bool kubeflow = false;
  arguments.positional("RUN", run, "a run folder, or the name of a run in runs/");
  arguments.option("--to", where,
                   "where the webhook's address is: env:NAME or file:PATH; the address is a secret");
  arguments.option("--on", kinds,
                   "which news, with commas: failure, hang, preemption, spike, end; default: all");
  arguments.option("--of", process, "the process whose end is the run's; default: its ranks on this host");
  arguments.flag("--kubeflow", kubeflow,
                 "instead, report progress and metrics to the Kubeflow Trainer whose address is in "
                 "KUBEFLOW_TRAINER_SERVER_URL; `train` does so by itself");
  arguments.option("--test", test, "only send this text, to see that the webhook works");
  arguments.example("lockstep train first.toml --notify env:SLACK_WEBHOOK",
                    "a run that tells you how it goes");
  arguments.example("lockstep notify runs/first --to file:~/.webhook --on failure,end",
                    "for a run that is already training");
  arguments.example("lockstep notify --to env:SLACK_WEBHOOK --test hello", "does it arrive?");
  if (!arguments.parse()) return 0;
  ::signal(SIGPIPE, SIG_IGN);  // a server that hangs up must not end it
  const base::ProcessBirth birth = base::birth_of(process);
  if (kubeflow) {
    const std::string folder = process > 0 ? run : wanted_run(run, "notify");
    report_progress(folder, [&] { return lives(process, birth, folder); });
    return 0;
  }
  take_signals();
  if (where.empty())
    throw base::ConfigError(109, "notify needs --to: lockstep notify runs/first --to env:SLACK_WEBHOOK");
  const http::Url url = address_of(where);
  if (!test.empty()) {
    if (send(url, {.kind = "test", .text = test})) return 0;
    throw base::IoError(767, "the webhook did not take the message; see above");
  }
  const std::string folder = process > 0 ? run : wanted_run(run, "notify");
  see::Notifier notifier(folder, kinds);
  while (lives(process, birth, folder)) {
    for (const see::Notice& notice : notifier.fresh()) send(url, notice);
    std::this_thread::sleep_for(kLook);
  }
  for (const see::Notice& notice : notifier.ended()) send(url, notice);
  return 0;
}

}  // namespace lockstep::cli

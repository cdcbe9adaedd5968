// lockstep top: what every rank of a run on this host, of programs of others under `lockstep launch`, and
// every GPU is doing, once or again every second.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/cli/see/top_gpus.h"
#include "lockstep/cli/see/top_launch.h"
#include "lockstep/see/dash/catalogue.h"
#include "lockstep/see/ranks_now.h"
#include "lockstep/see/run_log.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

using terminal::Colour;

constexpr unsigned kLookAgain = 300'000;  // microseconds
constexpr int kTries = 12;

struct Look {
  const see::RunLog* log;
  std::vector<see::RankNow> ranks;
  int64_t steps = 0;  // in all; 0: not known
  std::vector<device::GpuNow> gpus = {};
  std::vector<device::LinkNow> links = {};  // of this host
  std::string ending = {};       // how it ended, where no rank is here: finished, preempted, failed, ...
  std::vector<int> unseen = {};  // ranks on other hosts, of which nothing is known

  // The newest: a number, "nan" or "inf", or null.
  nlohmann::json value(const char* name) const {
    if (const std::string word = log->rows().last_word(name); !word.empty()) return word;
    const double number = log->rows().last(name);
    return std::isnan(number) ? nlohmann::json() : nlohmann::json(number);
  }
  int64_t step() const { return log->rows().empty() ? 0 : log->rows().step(log->rows().size() - 1); }
  bool trains() const {
    return std::any_of(ranks.begin(), ranks.end(), [](const see::RankNow& one) { return one.alive; });
  }
};

std::string state_of(const Look& look) {
  if (look.trains()) return "training";
  const bool over = !look.ending.empty() && look.ending != "training" && look.ending != "starting";
  return over ? look.ending : "not running here";
}

std::string head_line(const Look& look) {
  std::string line = fmt::format("{}  {}  {}", look.log->folder(), state_of(look),
                                 progress_text(*look.log, look.steps, look.trains()));
  const double waited = look.log->rows().last("data_wait_ms"), step = look.log->rows().last("step_ms");
  if (look.trains() && waited >= 0 && step > 0)
    line += fmt::format("  data wait {:.0f} %", 100 * std::min(waited / step, 1.0));
  return line;
}

std::string doing(const see::RankNow& rank) {
  if (!rank.alive) return "ended";
  if (rank.facts.stopped) return rank.facts.traced ? "stopped by a debugger" : "stopped";
  if (rank.facts.in_kernel) return "waits for a disk or file server";
  const std::string phase = watch::name_of(rank.facts.phase);
  return rank.facts.phase == watch::Phase::train && !rank.facts.last.empty() ? rank.facts.last : phase;
}

bool on_several_hosts(const std::vector<see::RankNow>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [](const see::RankNow& one) { return one.elsewhere; });
}

std::string table_of(const std::vector<see::RankNow>& ranks, const terminal::Terminal& screen) {
  constexpr size_t kRoomForAll = 90;
  const bool all = screen.width >= kRoomForAll, hosts = on_several_hosts(ranks);
  std::vector<std::string> heading{"rank", "step", "doing", "step time", "waits", "memory"};
  if (hosts) heading.insert(heading.begin() + 1, "host");
  if (all) heading.insert(heading.end(), {"cores", "process"});
  heading.push_back("");
  terminal::Table table(heading);
  for (size_t column = 0; column + 1 < heading.size(); ++column) {
    if (heading[column] != "doing" && heading[column] != "host") table.align_right(column);
  }
  for (const see::RankNow& rank : ranks) {
    std::vector<std::string> row{std::to_string(rank.facts.rank),
                                 std::to_string(rank.facts.step),
                                 doing(rank),
                                 rank.step_seconds > 0 ? base::human_duration(rank.step_seconds) : "",
                                 rank.waits ? fmt::format("{:.0f} %", 100 * *rank.waits) : "",
                                 rank.memory > 0 ? base::human_bytes(static_cast<double>(rank.memory)) : ""};
    if (hosts) row.insert(row.begin() + 1, rank.facts.host);
    if (all) {
      row.push_back(rank.cpu ? fmt::format("{:.2f}", *rank.cpu) : "");
      row.push_back(std::to_string(rank.facts.pid));
    }
    row.push_back(!rank.straggler ? "" : all ? "others wait for it" : "slow");
    table.add(std::move(row));
  }
  return table.to_text(screen);
}

// What `s` goes through.
struct Order {
  const char* name;
  double (*of)(const see::RankNow& rank);  // the largest first
};
constexpr Order kOrders[] = {
    {"rank", [](const see::RankNow& one) { return -static_cast<double>(one.facts.rank); }},
    {"step time", [](const see::RankNow& one) { return one.step_seconds; }},
    {"waits", [](const see::RankNow& one) { return one.waits.value_or(0); }},
    {"memory", [](const see::RankNow& one) { return static_cast<double>(one.memory); }}};

const Order& order_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Order& order : kOrders) {
    if (name == order.name || (name == "step" && order.name == std::string("step time"))) return order;
    names.push_back(order.name);
  }
  throw base::ConfigError(
      109, fmt::format("--sort {}: expected one of {}", base::quoted(name), base::join(names, ", ")));
}

void sort_ranks(std::vector<see::RankNow>& ranks, const Order& order) {
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](const see::RankNow& a, const see::RankNow& b) { return order.of(a) > order.of(b); });
}

std::string gpu_view(const std::vector<device::GpuNow>& gpus, bool trains, const terminal::Terminal& screen) {
  if (gpus.empty()) return "";
  std::string text = "\n" + gpu_table(gpus, screen);
  for (const std::string& warning : gpu_warnings(gpus, trains))
    text += screen.paint(base::hanging(warning, screen.width, 2), Colour::yellow) + "\n";
  return text;
}

// What a screen has: its table is what may be cut where the window has fewer lines.
struct View {
  std::string head, table, tail;
};

View view_of(const Look& look, const terminal::Terminal& screen) {
  const auto paragraph = [&](const std::string& text) { return base::hanging(text, screen.width, 2) + "\n"; };
  View view{.head = paragraph(head_line(look)) + "\n", .table = table_of(look.ranks, screen), .tail = ""};
  if (look.ranks.empty())
    view.table = fmt::format("no rank has left a mark in {}/trace on this host\n", look.log->folder());
  if (look.trains() && !look.unseen.empty())
    view.tail +=
        paragraph(fmt::format("{} more rank{} on other hosts: the host of the run's first node shows "
                              "all of them, and so does every host that shares the run's folder",
                              look.unseen.size(), look.unseen.size() == 1 ? "" : "s"));
  if (const auto verdict = look.trains() ? see::RanksNow::verdict(look.ranks) : std::nullopt)
    view.tail += "\n" + screen.paint(base::hanging(verdict->sentence, screen.width, 2), Colour::red) + "\n";
  view.tail += gpu_view(look.gpus, look.trains(), screen);
  if (const std::string line = network_line(look.links); !line.empty()) view.tail += "\n" + paragraph(line);
  return view;
}

void show(const View& view) { print("{}{}{}", view.head, view.table, view.tail); }

// In place of what the window shows. Nothing scrolls: of too many ranks the first are shown.
void show_again(const View& view, const terminal::Terminal& screen) {
  std::fputs("\x1b[H\x1b[2J", stdout);
  const auto lines_of = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  constexpr int64_t kLeast = 3;  // a heading and two ranks
  const int64_t all = lines_of(view.table), beside = lines_of(view.head) + lines_of(view.tail) + 1,
                room = std::max(kLeast, static_cast<int64_t>(screen.height) - beside);
  View shown = view;
  if (screen.height > 0 && all > room) {
    size_t end = 0;
    for (int64_t k = 1; k < room; ++k) end = view.table.find('\n', end) + 1;
    const std::string more = fmt::format("... and {} more lines: a taller window shows them", all - room + 1);
    shown.table = view.table.substr(0, end) + base::cut_to_width(more, screen.width - 1) + "\n";
  }
  show(shown);
  std::fflush(stdout);
}

nlohmann::json to_json(const Look& look) {
  nlohmann::json ranks = nlohmann::json::array();
  for (const see::RankNow& rank : look.ranks) {
    nlohmann::json one{{"rank", rank.facts.rank},     {"pid", rank.facts.pid},
                       {"host", rank.facts.host},     {"alive", rank.alive},
                       {"step", rank.facts.step},     {"phase", watch::name_of(rank.facts.phase)},
                       {"doing", doing(rank)},        {"step_ms", 1e3 * rank.step_seconds},
                       {"memory_bytes", rank.memory}, {"straggler", rank.straggler}};
    if (rank.waits) one["waits"] = *rank.waits;
    ranks.push_back(std::move(one));
  }
  const auto verdict = look.trains() ? see::RanksNow::verdict(look.ranks) : std::nullopt;
  return {{"run", look.log->folder()},
          {"state", state_of(look)},
          {"step", look.step()},
          {"steps", look.steps},
          {"loss", look.value("loss")},
          {"tokens_per_s", look.value("tokens_per_s")},
          {"ranks", ranks},
          {"unseen", look.unseen},
          {"data_wait_ms", look.value("data_wait_ms")},
          {"gpus", gpus_json(look.gpus, look.trains())},
          {"network", network_json(look.links)},
          {"verdict", verdict ? nlohmann::json(verdict->sentence) : nlohmann::json()}};
}

// A signal that ends this program finds the terminal as it was. By a thread: a disk that does not answer may
// hold up the other one.
void restore_at_signals(const termios& before) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&ends, one);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::thread([ends, before] {
    int number = 0;
    ::sigwait(&ends, &number);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
    ::signal(number, SIG_DFL);
    ::pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
    ::raise(number);
  }).detach();
}

// Keys without Enter, given back as they were.
class Keys {
 public:
  Keys() {
    if (::isatty(STDIN_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    restore_at_signals(before_);
    raw_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
  }
  ~Keys() {
    if (raw_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  // The key that was pressed within this time; 0: none.
  char wait(int milliseconds) const {
    pollfd input{raw_ ? STDIN_FILENO : -1, POLLIN, 0};
    char key = 0;
    if (::poll(&input, 1, milliseconds) > 0 && ::read(STDIN_FILENO, &key, 1) != 1) return 'q';
    return key;
  }

 private:
  termios before_{};
  bool raw_ = false;
};

// Without a name: a run that trains here comes before programs of others.
bool newest_run_trains() {
  try {
    return see::lives_here(wanted_run("", "top"));
  } catch (const base::Error&) {
    return false;
  }
}

// Until they have all ended, or a key says so.
int watch_launches(int launcher, bool json, bool once) {
  device::GpuWatch gpu_watch;
  see::ForeignNow foreign;
  const auto look = [&] {
    std::vector<LaunchLook> looks;
    for (watch::LaunchStatus& one : launches_here(launcher)) {
      std::vector<see::ForeignRankNow> ranks = foreign.ranks(one);
      looks.push_back({std::move(one), std::move(ranks)});
    }
    return looks;
  };
  if (once) {
    static_cast<void>(look());  // how busy a rank is shows between two looks
    ::usleep(kLookAgain);
    const std::vector<device::GpuNow> gpus = gpu_watch.look();
    nlohmann::json all = nlohmann::json::array();
    for (const LaunchLook& one : look()) {
      if (json) {
        all.push_back(launch_json(one, gpus));
      } else {
        print("{}", launch_view(one, gpus, terminal::terminal_of(STDOUT_FILENO)));
      }
    }
    if (json) {
      report_json(nlohmann::json{{"launches", all}, {"gpus", gpus_json(gpus, true)}});
    } else {
      print("{}", gpu_view(gpus, true, terminal::terminal_of(STDOUT_FILENO)));
    }
    return 0;
  }
  const Keys keys;
  bool frozen = false;
  while (true) {
    if (!frozen) {
      const std::vector<LaunchLook> looks = look();
      const terminal::Terminal screen = terminal::terminal_of(STDOUT_FILENO);
      const std::vector<device::GpuNow> gpus = gpu_watch.look();
      View view{
          .head = "", .table = looks.empty() ? "it has ended\n" : "", .tail = gpu_view(gpus, true, screen)};
      for (const LaunchLook& one : looks)
        view.table += (view.table.empty() ? "" : "\n") + launch_view(one, gpus, screen);
      show_again(view, screen);
      if (looks.empty()) return 0;
    }
    constexpr int kPause = 1000;
    const char key = keys.wait(kPause);
    if (key == 'q' || key == 'Q' || key == 27) return 0;
    if (key == ' ') frozen = !frozen;
  }
}

}  // namespace

int top_command(Arguments& arguments) {
  std::string folder;
  std::string sorted = "rank";
  bool once = false, json = false;
  arguments.positional(
      "RUN", folder,
      "a run folder, a run in runs/, or the process number of a `lockstep launch`; default: the run "
      "that wrote last if it trains, otherwise what is launched here");
  arguments.option("--sort", sorted, "ranks by: rank, step time, waits or memory; the key s changes it");
  arguments.flag("--once", once, "print it once; in a pipe always");
  arguments.flag("--json", json, "print it once, as JSON");
  arguments.example("lockstep top",
                    "the newest run, again every second; q ends, s sorts, space freezes the screen");
  arguments.example("lockstep top runs/first --json", "for scripts");
  arguments.example("lockstep launch --nproc 4 train.py & lockstep top",
                    "ranks of a PyTorch script, from outside");
  if (!arguments.parse()) return 0;
  const Order* order = &order_named(sorted);
  device::GpuWatch gpus;
  device::NetworkWatch network;
  const int launcher = base::parse_number<int>(folder).value_or(0);
  std::vector<watch::LaunchStatus> launches =
      folder.empty() || launcher > 0 ? launches_here(launcher) : std::vector<watch::LaunchStatus>();
  const bool of_launches = !launches.empty() && (launcher > 0 || !newest_run_trains());
  const terminal::Terminal screen = terminal::terminal_of(STDOUT_FILENO);
  if (of_launches) return watch_launches(launcher, json, json || once || !screen.is_tty);
  folder = wanted_run(folder, "top");
  see::RunLog log(folder);
  see::RanksNow ranks(folder, see::RanksNow::Reach::all_hosts);
  const int64_t steps = steps_wanted(folder);
  see::Catalogue catalogue(folder);
  const auto look = [&] {
    log.poll();
    Look now{.log = &log,
             .ranks = ranks.look(),
             .steps = steps,
             .gpus = gpus.look(),
             .links = network.look(),
             .unseen = ranks.unseen()};
    if (!now.trains()) {
      catalogue.scan();
      if (const auto run = catalogue.find(".")) now.ending = run->state;
    }
    sort_ranks(now.ranks, *order);
    return now;
  };
  if (json || once || !screen.is_tty) {
    if (Look first = look(); first.trains()) ::usleep(kLookAgain);  // rates need two looks
    Look now = look();
    // The launcher that leads has heard the question within a second, and its answer is on disk soon after.
    for (int tries = 0; tries < kTries && now.trains() && !now.unseen.empty(); ++tries) {
      ::usleep(kLookAgain);
      now = look();
    }
    if (json) {
      report_json(to_json(now));
    } else {
      show(view_of(now, screen));
    }
    return 0;
  }
  const Keys keys;
  bool frozen = false;
  while (true) {
    if (!frozen) {
      const terminal::Terminal now = terminal::terminal_of(STDOUT_FILENO);
      show_again(view_of(look(), now), now);
    }
    constexpr int kPause = 1000;
    const char key = keys.wait(kPause);
    if (key == 'q' || key == 'Q' || key == 27) return 0;
    if (key == ' ') frozen = !frozen;
    if (key == 's') order = order + 1 == std::end(kOrders) ? std::begin(kOrders) : order + 1;
  }
}

}  // namespace lockstep::cli

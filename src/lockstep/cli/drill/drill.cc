// lockstep drill: faults on the user's own recipe, and what came of each. A rehearsal, and our soak test.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/drill/drill_faults.h"
#include "lockstep/cli/drill/drill_places.h"
#include "lockstep/cli/print.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

using nlohmann::ordered_json;

struct DrillArguments {
  recipe::RecipeSource source;
  int64_t ranks = 4, seed = 0, steps = 0, patience = 120;
  std::string faults, folder;
  bool json = false;
};

struct Wanted {
  const Fault* fault;
  int64_t times;
};

// "kill,term" or "kill:200": each strikes once, or so many times in one run.
std::vector<Wanted> read_faults(const std::string& text) {
  std::vector<Wanted> wanted;
  std::vector<std::string> names;
  for (const Fault& fault : drill_faults()) {
    names.push_back(fault.name);
    if (text.empty()) wanted.push_back({&fault, 1});
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size()), colon = std::min(text.find(':', at), end);
    const std::string name = text.substr(at, colon - at);
    int64_t times = 1;
    const bool counted = colon < end;
    if (counted) {
      times = base::parse_number(std::string_view(text).substr(colon + 1, end - colon - 1)).value_or(0);
      if (times < 1 || times > 100000) {
        throw base::ConfigError(561,
                                fmt::format("--faults {}: expected a count after the colon, such as kill:20",
                                            base::quoted(text.substr(at, end - at))));
      }
    }
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string near = base::nearest_word(name, names);
      throw base::ConfigError(561, fmt::format("--faults {}: unknown fault; {}", base::quoted(name),
                                               near.empty() ? "they are " + base::join(names, ", ")
                                                            : "did you mean " + near + "?"));
    }
    wanted.push_back({&drill_faults()[static_cast<size_t>(found - names.begin())], times});
    at = end + 1;
  }
  return wanted;
}

// The words that start a run of the recipe on so many ranks.
std::vector<std::string> train_words(const DrillArguments& arguments) {
  std::vector<std::string> words;
  if (!arguments.source.file.empty()) words.push_back(arguments.source.file);
  words.insert(words.end(), arguments.source.overrides.begin(), arguments.source.overrides.end());
  words.insert(words.end(), {"run.name=drill", "log.every=1", "log.eval_every=0", "checkpoint.keep=3",
                             "--nproc", std::to_string(arguments.ranks)});
  return words;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The run that nothing disturbs, once for each number of steps.
class Undisturbed {
 public:
  explicit Undisturbed(const Drill& drill) : drill_(drill) {}
  const std::string& hash(int64_t steps) {
    std::string& hash = hashes_[steps];
    if (hash.empty()) hash = train(steps);
    return hash;
  }
  int64_t checkpoint_bytes(int64_t steps) const { return folder_bytes(folder(steps) + "/checkpoints"); }
  // Steps that take a few seconds: enough time to strike.
  int64_t enough_steps() {
    train(30);
    std::vector<double> times;
    for (const std::string& line : base::split_lines(base::read_file(folder(30) + "/metrics.jsonl"))) {
      const auto parsed = nlohmann::json::parse(line, nullptr, false);
      if (parsed.is_object() && parsed.contains("step_ms")) times.push_back(parsed["step_ms"]);
    }
    return std::clamp<int64_t>(static_cast<int64_t>(4000 / std::max(0.1, median(times))), 60, 4000);
  }

  std::string folder(int64_t steps) const { return fmt::format("{}/undisturbed-{}", drill_.folder, steps); }

 private:
  std::string train(int64_t steps) {
    DrillRun::Options options{folder(steps), drill_.words, drill_.ranks, drill_.patience};
    options.words.push_back(fmt::format("run.steps={}", steps));
    DrillRun run(std::move(options));
    const int code = run.finish();
    if (code == 0) return run.params_hash();
    throw base::RunError(
        603, fmt::format("the reference run without faults exited with code {}; fix it before the drill:\n{}",
                         code, run.last_lines()));
  }
  const Drill& drill_;
  std::map<int64_t, std::string> hashes_;
};

struct Line {
  Wanted wanted;
  DrillResult result;
  bool equal = false;
  bool good() const { return !result.skipped.empty() || (result.problem.empty() && equal); }
  double noticed() const {
    std::vector<double> all;
    for (const Struck& one : result.struck) all.push_back(one.noticed);
    return median(std::move(all));
  }
  double recovered() const {
    std::vector<double> all;
    for (const Struck& one : result.struck) all.push_back(one.recovered);
    return median(std::move(all));
  }
  double slowest() const {
    double most = 0;
    for (const Struck& one : result.struck) most = std::max(most, one.recovered);
    return most;
  }
  int64_t lost() const {
    int64_t most = 0;
    for (const Struck& one : result.struck) most = std::max(most, one.lost);
    return most;
  }
};

std::vector<std::string> cells(const Line& line) {
  const std::string name = line.wanted.times > 1
                               ? fmt::format("{} x {}", line.wanted.fault->name, line.wanted.times)
                               : line.wanted.fault->name;
  if (!line.result.skipped.empty()) return {name, "", "", "", "skipped: " + line.result.skipped};
  return {name, fmt::format("{:.2f} s", line.noticed()), fmt::format("{:.2f} s", line.recovered()),
          std::to_string(line.lost()),
          !line.result.problem.empty()
              ? "FAILED: " + line.result.problem.substr(0, line.result.problem.find('\n'))
          : line.equal ? "yes"
                       : "NO"};
}

ordered_json to_json(const Line& line) {
  ordered_json json{{"fault", line.wanted.fault->name},     {"what", line.wanted.fault->what},
                    {"strikes", line.result.struck.size()}, {"noticed_s", line.noticed()},
                    {"recovered_s", line.recovered()},      {"recovered_most_s", line.slowest()},
                    {"steps_lost_most", line.lost()},       {"equal", line.equal}};
  if (!line.result.problem.empty()) json["problem"] = line.result.problem;
  if (!line.result.skipped.empty()) json["skipped"] = line.result.skipped;
  return json;
}

void print_lines(const DrillArguments& arguments, const std::vector<Line>& lines) {
  terminal::Table table({"fault", "detected after", "recovered after", "steps lost", "bits equal"});
  for (const size_t column : {1, 2, 3}) table.align_right(column);
  for (const Line& line : lines) table.add(cells(line));
  print(
      "{}\nSeed {}: repeat the same faults with --seed {}. Times are medians, steps the maximum over all "
      "faults injected.\n",
      table.to_text(terminal::terminal_of(STDOUT_FILENO)), arguments.seed, arguments.seed);
  for (const Line& line : lines) {
    if (!line.result.problem.empty()) print("\n{}: {}\n", line.wanted.fault->name, line.result.problem);
  }
}

// A folder of one's own, gone at the end unless something went wrong in it.
struct Scratch {
  std::string path;
  bool keep = false;
  explicit Scratch(const std::string& folder) {
    if (!folder.empty()) {
      path = folder, keep = true;
      base::make_folders(path);
      return;
    }
    std::string name = std::filesystem::temp_directory_path().string() + "/lockstep-drill-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw base::IoError(803, name + " cannot be created");
    path = name;
  }
  ~Scratch() {
    std::error_code error;
    if (!keep) std::filesystem::remove_all(path, error);
  }
};

}  // namespace

int drill_command(Arguments& arguments) {
  DrillArguments wanted;
  arguments.recipe(wanted.source);
  arguments.option("--nproc-per-node,--nproc", wanted.ranks, "ranks per run; default: 4");
  arguments.option("--seed", wanted.seed, "seed for where faults are injected; default: a new one, printed");
  std::vector<std::string> names;
  for (const Fault& fault : drill_faults()) names.emplace_back(fault.name);
  arguments.option("--faults", wanted.faults,
                   "faults, comma-separated; NAME:N injects it N times in one run; default: all of " +
                       base::join(names, ", "));
  arguments.option("--steps", wanted.steps, "steps per run; default: as many as take a few seconds");
  arguments.option("--patience", wanted.patience,
                   "seconds without progress after which a run has failed; default: 120");
  arguments.option("--folder", wanted.folder, "folder to keep the runs in; default: a temporary folder");
  arguments.flag("--json", wanted.json, "print the rows as JSON");
  arguments.example("lockstep drill", "the default recipe on four ranks, every fault once");
  arguments.example("lockstep drill first.toml --nproc 8 --faults kill:20,stop",
                    "twenty kills, and a freeze");
  if (!arguments.parse()) return 0;
  const std::vector<Wanted> faults = read_faults(wanted.faults);
  recipe::read_recipe(wanted.source);  // refused before anything starts
  if (wanted.ranks < 1 || wanted.ranks > 4096)
    throw base::ConfigError(561, fmt::format("--nproc {}: expected 1 to 4096 ranks", wanted.ranks));
  if (wanted.patience < 1 || wanted.patience > 1000000)
    throw base::ConfigError(561,
                            fmt::format("--patience {}: expected 1 to 1000000 seconds", wanted.patience));
  if (wanted.seed == 0) wanted.seed = static_cast<int64_t>(std::random_device()() & 0xFFFFFF) + 1;

  Scratch scratch(wanted.folder);
  Drill drill;
  drill.words = train_words(wanted), drill.folder = scratch.path,
  drill.ranks = static_cast<int>(wanted.ranks), drill.patience = static_cast<double>(wanted.patience);
  drill.random.seed(static_cast<uint64_t>(wanted.seed));
  Undisturbed undisturbed(drill);
  const int64_t usual = wanted.steps > 0 ? wanted.steps : undisturbed.enough_steps();
  std::vector<Line> lines;
  for (const Wanted& one : faults) {
    drill.times = one.times;
    drill.steps = std::max(usual, one.times * 45);
    const std::string expected = undisturbed.hash(drill.steps);
    drill.checkpoint_bytes = undisturbed.checkpoint_bytes(drill.steps);
    drill.undisturbed = undisturbed.folder(drill.steps);
    remark("{}: {}{}\n", one.fault->name, one.fault->what,
           one.times > 1 ? fmt::format(", {} times", one.times) : "");
    Line& line = lines.emplace_back(Line{one, one.fault->run(drill, *one.fault)});
    line.equal = !expected.empty() && line.result.params_hash == expected;
    scratch.keep |= !line.good();
  }
  const bool good = std::all_of(lines.begin(), lines.end(), [](const Line& line) { return line.good(); });
  if (wanted.json) {
    ordered_json rows = ordered_json::array();
    for (const Line& line : lines) rows.push_back(to_json(line));
    print("{}\n", ordered_json{{"seed", wanted.seed},
                               {"ranks", wanted.ranks},
                               {"steps", usual},
                               {"good", good},
                               {"faults", rows}}
                      .dump());
  } else {
    print_lines(wanted, lines);
  }
  if (!good && wanted.folder.empty()) remark("the runs are kept in {}\n", scratch.path);
  return good ? 0 : 1;
}

}  // namespace lockstep::cli

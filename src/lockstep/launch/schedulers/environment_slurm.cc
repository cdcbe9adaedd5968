#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/schedulers/environment_readers.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostNames = 65536;
constexpr int64_t kFirstSpecialStep =
    0xfffffff0;  // interactive, batch and external steps are numbered above it

using Names = std::vector<std::string>;

// "01-03" or "7", each with `before` in front. False: malformed or too many.
bool expand_range(const std::string& before, std::string_view range, Names& into) {
  const size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  const std::optional<int> first = parse_count(low), last = parse_count(high);
  if (!first || !last || *first > *last || static_cast<size_t>(*last - *first) >= kMostNames) return false;
  for (int i = *first; i <= *last; ++i) into.push_back(fmt::format("{}{:0{}}", before, i, low.size()));
  return into.size() <= kMostNames;
}

// "rack[1-2]n[01-04]": every combination, the last bracket fastest.
std::optional<Names> expand_name(std::string_view pattern) {
  Names names{""};
  while (!pattern.empty()) {
    const size_t open = pattern.find('[');
    for (std::string& name : names) name += pattern.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = pattern.find(']', open);
    if (close == std::string_view::npos) return std::nullopt;
    const std::vector<std::string> ranges = split(pattern.substr(open + 1, close - open - 1), ',');
    Names longer;
    for (const std::string& name : names) {
      for (const std::string& range : ranges) {
        if (!expand_range(name, range, longer)) return std::nullopt;
      }
    }
    names = std::move(longer);
    pattern.remove_prefix(close + 1);
  }
  for (const std::string& name : names) {
    if (name.empty() || name.find_first_of("[] \t\n") != std::string::npos) return std::nullopt;
  }
  return names;
}

// A step that srun started, and not the shell of a batch script, of salloc or of an external step.
bool is_step(const Variables& slurm) {
  const std::string name = slurm.first_of({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (name.empty()) return false;
  const std::string text = slurm.text(name);
  const std::optional<uint32_t> step = base::parse_number<uint32_t>(text);
  if (!step) slurm.unreadable(name, "is not a step number");
  return *step < kFirstSpecialStep;
}

// The hosts of a step in the order of their numbers. Slurm's lists are sorted, and so are the numbers, but
// for a heterogeneous job: there each component has its numbers after those of the one before.
Names in_order(const Variables& slurm, const Names& listed) {
  Names ordered;
  for (int group = 0; group < slurm.number_or("SLURM_HET_SIZE", 0); ++group) {
    const std::optional<Names> some =
        expand_node_list(slurm.text(fmt::format("SLURM_JOB_NODELIST_HET_GROUP_{}", group)));
    if (!some) return listed;
    for (const std::string& host : *some) {  // a step may leave components out
      if (std::find(listed.begin(), listed.end(), host) != listed.end()) ordered.push_back(host);
    }
  }
  return ordered.size() == listed.size() ? ordered : listed;
}

// `listed`: the step's hosts, in the order of its list of tasks.
void read_tasks(const Variables& slurm, const std::string& nodes_name, const std::string& tasks_name,
                const Names& listed, Scheduled& to) {
  const std::string name = slurm.first_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (name.empty()) {
    if (to.tasks % to.nodes != 0) slurm.require({"SLURM_STEP_TASKS_PER_NODE"});
    to.node_tasks = to.tasks / to.nodes;
    return;
  }
  const std::optional<std::vector<int>> counts = expand_counts(slurm.text(name));
  if (!counts) slurm.unreadable(name, "is not a list such as 2(x3),1");
  if (static_cast<int>(counts->size()) != to.nodes) {
    slurm.contradict(
        fmt::format("{} has {} nodes, {} has {}", slurm.shown(name), counts->size(), nodes_name, to.nodes));
  }
  if (std::accumulate(counts->begin(), counts->end(), 0) != to.tasks) {
    slurm.contradict(fmt::format("{} does not add up to {}", slurm.shown(name), slurm.shown(tasks_name)));
  }
  const auto here = std::find(listed.begin(), listed.end(), to.hosts[static_cast<size_t>(to.node)]);
  to.node_tasks = (*counts)[static_cast<size_t>(here - listed.begin())];
}

void read_gpus(const Variables& slurm, Scheduled& to) {
  const std::string name = slurm.first_of({"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS"});
  to.gpus = slurm.text(name);
}

}  // namespace

std::optional<std::vector<std::string>> expand_node_list(std::string_view list) {
  Names names;
  for (size_t begin = 0; begin <= list.size();) {
    size_t end = begin;
    for (int depth = 0; end < list.size() && (depth > 0 || list[end] != ','); ++end) {
      depth += list[end] == '[' ? 1 : list[end] == ']' ? -1 : 0;
    }
    const std::optional<Names> some = expand_name(list.substr(begin, end - begin));
    if (!some || some->empty() || names.size() + some->size() > kMostNames) return std::nullopt;
    names.insert(names.end(), some->begin(), some->end());
    begin = end + 1;
  }
  return names;
}

std::optional<std::vector<int>> expand_counts(std::string_view counts) {
  std::vector<int> numbers;
  for (const std::string& part : split(counts, ',')) {
    const size_t open = part.find("(x");
    const std::optional<int> count = parse_count(std::string_view(part).substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string::npos) {
      if (part.back() != ')') return std::nullopt;
      times = parse_count(std::string_view(part).substr(open + 2, part.size() - open - 3));
    }
    if (!count || !times || numbers.size() + static_cast<size_t>(*times) > kMostNames) return std::nullopt;
    numbers.insert(numbers.end(), static_cast<size_t>(*times), *count);
  }
  return numbers;
}

std::optional<Scheduled> read_slurm(const Environment& environment, const FileReader&) {
  const Variables slurm("Slurm", environment);
  const std::string job_name = slurm.first_of({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!is_step(slurm) || job_name.empty()) return std::nullopt;
  // A step may have fewer nodes and tasks than its job: its own variables come first.
  const auto pick = [&](const std::vector<std::string>& names) {
    const std::string name = slurm.first_of(names);
    return name.empty() ? names.front() : name;
  };
  const std::string nodes = pick({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  const std::string tasks = pick({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  const std::string list = pick({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  slurm.require({"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", nodes, tasks, list});
  slurm.require_below("SLURM_PROCID", tasks);
  slurm.require_below("SLURM_NODEID", nodes);

  Scheduled to;
  to.scheduler = "Slurm";
  to.job = slurm.text(job_name) + "." + slurm.text(slurm.first_of({"SLURM_STEP_ID", "SLURM_STEPID"}));
  to.nodes = to.fewest_nodes = slurm.number(nodes);
  to.tasks = slurm.number(tasks);
  to.node = slurm.number("SLURM_NODEID");
  to.task = slurm.number("SLURM_PROCID");
  to.local_task = slurm.number("SLURM_LOCALID");
  const std::optional<Names> hosts = expand_node_list(slurm.text(list));
  if (!hosts) slurm.unreadable(list, "is not a list of nodes such as n[1-4]");
  if (static_cast<int>(hosts->size()) != to.nodes) {
    slurm.contradict(
        fmt::format("{} lists {} nodes, but {} says {}", slurm.shown(list), hosts->size(), nodes, to.nodes));
  }
  to.hosts = in_order(slurm, *hosts);
  to.first_host = to.hosts.front();
  read_tasks(slurm, nodes, tasks, *hosts, to);
  if (to.local_task >= to.node_tasks) {
    slurm.contradict(
        fmt::format("{}, but this node has {} tasks", slurm.shown("SLURM_LOCALID"), to.node_tasks));
  }
  to.kind = to.tasks > to.nodes ? TaskKind::one_a_rank : TaskKind::one_a_node;
  // A job that was put into the queue again has its number, and what it left may still be ending.
  to.agreed_for = fmt::format("Slurm {} start {}", to.job, slurm.text("SLURM_RESTART_COUNT"));
  read_gpus(slurm, to);
  return to;
}

}  // namespace lockstep::launch

#include "lockstep/watch/facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/group.h"
#include "lockstep/program/program.h"

namespace lockstep::watch {

using base::RingEntry;
using nlohmann::json;
namespace fs = std::filesystem;

bool is_collective(const RingEntry& mark) { return mark.stamp.op >= comm::kFirstCollectiveOp; }

namespace {

constexpr size_t kMostGroups = 256, kMostMembers = 1 << 20, kMostText = 400;
constexpr int64_t kMostNames = 64 << 20;

double seconds(int64_t ns) { return std::max(0.0, static_cast<double>(ns) / 1e9); }

int64_t newest_stamp(const RingEntry& e) { return std::max({e.enqueued_ns, e.started_ns, e.finished_ns}); }

std::string collective_name(uint16_t op) {
  const int kind = op - comm::kFirstCollectiveOp;
  return kind <= static_cast<int>(comm::Collective::give_back)
             ? comm::name_of(static_cast<comm::Collective>(kind))
             : "an unknown call";
}

std::string title(const RingEntry& e, const Names& names, bool training) {
  const auto n = static_cast<size_t>(e.stamp.instruction);
  const bool named = training && e.stamp.instruction >= 0 && n < names.instructions.size();
  if (is_collective(e)) return named ? names.instructions[n] : collective_name(e.stamp.op);
  const char* verb = program::name_of_verb(e.stamp.op);
  if (verb == nullptr) return "an unknown instruction";
  std::string text = verb;
  if (e.stamp.block >= 0) text += fmt::format(" b{}", e.stamp.block);
  if (e.stamp.slice >= 0) text += fmt::format(" s{}", e.stamp.slice);
  return text;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What this instruction took before, or, where it has ended, how long it was until the next one began.
double usual(const std::vector<RingEntry>& marks, const RingEntry& last, bool open) {
  std::vector<double> times;
  for (size_t k = 0; k + 1 < marks.size(); ++k) {
    const RingEntry& e = marks[k];
    if (e.stamp.instruction != last.stamp.instruction || e.stamp.op != last.stamp.op) continue;
    if (open && e.finished_ns != 0) times.push_back(seconds(e.finished_ns - e.started_ns));
    if (!open) times.push_back(seconds(marks[k + 1].enqueued_ns - newest_stamp(e)));
  }
  return median(std::move(times));
}

double usual_step(const std::vector<RingEntry>& marks) {
  std::map<int64_t, int64_t> begins;
  for (const RingEntry& e : marks) {
    if (!is_collective(e)) begins.try_emplace(e.stamp.step, e.enqueued_ns);
  }
  std::vector<double> times;
  for (auto it = begins.begin(); it != begins.end() && std::next(it) != begins.end(); ++it) {
    if (std::next(it)->first == it->first + 1) times.push_back(seconds(std::next(it)->second - it->second));
  }
  return median(std::move(times));
}

void take_phase(const std::vector<RingEntry>& phases, int64_t now_ns, RankFacts& facts) {
  if (phases.empty()) return;
  const RingEntry& last = phases.back();
  if (last.stamp.op <= static_cast<uint16_t>(watch::Phase::end))
    facts.phase = static_cast<watch::Phase>(last.stamp.op);
  facts.phase_seconds = seconds(now_ns - last.started_ns);
  facts.step = last.stamp.step;
  const auto usual_of = [&](uint16_t phase) {
    std::vector<double> times;
    for (const RingEntry& e : phases) {
      if (e.stamp.op == phase && e.finished_ns != 0) times.push_back(seconds(e.finished_ns - e.started_ns));
    }
    return median(std::move(times));
  };
  facts.usual_phase_seconds = usual_of(last.stamp.op);
  facts.usual_save = usual_of(static_cast<uint16_t>(watch::Phase::save));
}

void take_groups(const std::vector<RingEntry>& marks, const Names& names, int64_t now_ns, RankFacts& facts) {
  facts.groups = names.groups;
  for (const RingEntry& e : marks) {
    if (!is_collective(e) || e.stamp.group < 0 || e.started_ns == 0) continue;
    const auto n = static_cast<size_t>(e.stamp.group);
    if (n >= facts.groups.size() || e.stamp.sequence < facts.groups[n].entered) continue;
    GroupFacts& group = facts.groups[n];
    group.entered = e.stamp.sequence;
    group.inside = e.finished_ns == 0;
    group.since = seconds(now_ns - e.started_ns);
    group.call = title(e, names, facts.phase == watch::Phase::train);
    group.op = e.stamp.op, group.bytes = e.stamp.bytes;
  }
}

// Of the fields of /proc/PID/stat behind the name.
int64_t resident_bytes(const std::string& stat) {
  constexpr int kBefore = 21;  // pages are the 24th field
  std::istringstream fields(stat);
  std::string skipped;
  for (int k = 0; k < kBefore; ++k) fields >> skipped;
  int64_t pages = 0;
  fields >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

MarkTitle title_of(const RingEntry& mark, const Names& names) {
  MarkTitle found{title(mark, names, false), ""};
  const auto n = static_cast<size_t>(mark.stamp.instruction);
  if (mark.stamp.instruction < 0 || n >= names.instructions.size()) return found;
  const std::string verb = found.text.substr(0, found.text.find(' '));
  if (!is_collective(mark) && !names.instructions[n].starts_with(verb)) return found;
  if (n < names.lanes.size()) found.lane = names.lanes[n];
  if (!is_collective(mark)) found.text = names.instructions[n];
  return found;
}

Names read_names(const std::string& text) {
  Names names;
  const json all = json::parse(text, nullptr, false);
  if (!all.is_object()) return names;
  try {
    for (const json& one : all.at("groups")) {
      GroupFacts group;
      group.name = one.at("name").get<std::string>().substr(0, kMostText);
      group.members = one.at("members").get<std::vector<int>>();
      group.enqueues = one.at("enqueues");
      if (names.groups.size() < kMostGroups) names.groups.push_back(std::move(group));
    }
    names.instructions = all.at("instructions").get<std::vector<std::string>>();
    names.pid = all.at("pid");
    names.host = all.value("host", "");
    if (all.contains("lanes")) names.lanes = all.at("lanes").get<std::vector<std::string>>();
  } catch (const json::exception&) {
    return {};
  }
  return names;
}

std::optional<double> waiting_share(const std::vector<RingEntry>& marks) {
  int64_t first = 0, last = 0, waited = 0;
  for (const RingEntry& mark : marks) {
    if (mark.started_ns == 0 || mark.finished_ns == 0) continue;
    if (first == 0) first = mark.started_ns;
    last = std::max(last, mark.finished_ns);
    if (mark.stamp.group >= 0) waited += mark.finished_ns - mark.started_ns;
  }
  if (last <= first) return std::nullopt;
  return std::min(1.0, static_cast<double>(waited) / static_cast<double>(last - first));
}

void limit_waits(RankFacts& facts, double seconds) {
  for (GroupFacts& group : facts.groups) group.since = std::min(group.since, seconds);
  for (double* const wait : {&facts.last_seconds, &facts.phase_seconds}) *wait = std::min(*wait, seconds);
}

RankFacts digest(const std::vector<RingEntry>& marks, const std::vector<RingEntry>& phases,
                 const Names& names, int64_t now_ns) {
  RankFacts facts;
  take_phase(phases, now_ns, facts);
  take_groups(marks, names, now_ns, facts);
  facts.waits = waiting_share(marks);
  facts.last_seconds = facts.phase_seconds;
  int64_t newest = 0;
  const RingEntry *last = nullptr, *reached = nullptr;
  const bool on_device = std::any_of(names.groups.begin(), names.groups.end(),
                                     [](const GroupFacts& group) { return group.enqueues; });
  // What a device has ended says nothing of the host, which runs ahead of it.
  const auto when = [&](const RingEntry& e) { return on_device ? e.enqueued_ns : newest_stamp(e); };
  for (const RingEntry& e : marks) {
    newest = std::max(newest, newest_stamp(e));
    if (is_collective(e)) continue;  // these are told by group
    if (last == nullptr || when(e) >= when(*last)) last = &e;
    if (e.finished_ns != 0 && (reached == nullptr || e.ticket > reached->ticket)) reached = &e;
  }
  if (newest != 0) facts.last_seconds = std::min(facts.last_seconds, seconds(now_ns - newest));
  if (last == nullptr) return facts;
  facts.step = std::max(facts.step, last->stamp.step);
  facts.last = title(*last, names, facts.phase == watch::Phase::train);
  if (on_device && reached != nullptr)
    facts.reached = fmt::format("{} of step {}", title(*reached, names, facts.phase == watch::Phase::train),
                                reached->stamp.step + 1);
  facts.last_open = last->started_ns != 0 && last->finished_ns == 0;
  facts.usual_seconds = usual(marks, *last, facts.last_open);
  facts.usual_step = usual_step(marks);
  return facts;
}

RankFacts read_facts(const std::string& folder, int rank, int pid, double age, Names& names) {
  RankFacts facts;
  try {
    const base::RingReader ring(watch::ring_path(folder, rank)), phases(watch::phase_path(folder, rank));
    if (ring.pid() == pid && phases.pid() == pid) {
      if (names.pid != pid)
        names = read_names(base::try_read_file(watch::names_path(folder, rank), kMostNames).text);
      if (names.pid != pid) names = {};  // it has not written them yet
      facts = digest(ring.entries(), phases.entries(), names, base::monotonic_ns());
    } else {
      facts.phase_seconds = facts.last_seconds = age;
    }
  } catch (const base::Error&) {
    facts.phase_seconds = facts.last_seconds = age;
  }
  facts.rank = rank, facts.pid = pid, facts.host = base::host_name();
  std::string stat;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), stat);
  const size_t name_end = stat.rfind(") ");
  const char state = name_end != std::string::npos && name_end + 2 < stat.size() ? stat[name_end + 2] : '?';
  if (name_end != std::string::npos) facts.memory = resident_bytes(stat.substr(name_end + 2));
  std::string sleeps_in;
  std::getline(std::ifstream(fmt::format("/proc/{}/wchan", pid)), sleeps_in);
  facts.frozen =
      sleeps_in.find("refrigerator") != std::string::npos || sleeps_in.find("freezer") != std::string::npos;
  facts.traced = state == 't';
  facts.stopped = state == 'T' || facts.traced || facts.frozen;
  facts.in_kernel = state == 'D' && !facts.frozen;
  return facts;
}

std::map<int, int64_t> blocked_threads(int pid, const std::string& proc) {
  std::map<int, int64_t> blocked;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fmt::format("{}/{}/task", proc, pid), error)) {
    const int thread = base::parse_number<int>(entry.path().filename().string()).value_or(pid);
    if (thread == pid) continue;
    bool in_kernel = false;
    int64_t runs = 0;
    for (const std::string& line :
         base::split_lines(base::try_read_file(entry.path() / "status", 1 << 16).text)) {
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      const std::string_view name = std::string_view(line).substr(0, colon),
                             value = base::trimmed(std::string_view(line).substr(colon + 1));
      if (name == "State") in_kernel = value.starts_with("D");
      if (name.ends_with("voluntary_ctxt_switches")) runs += base::parse_number(value).value_or(0);
    }
    if (in_kernel) blocked[thread] = runs;
  }
  return blocked;
}

json to_json(const RankFacts& f) {
  json groups = json::array();
  for (const GroupFacts& g : f.groups) {
    groups.push_back({{"name", g.name},
                      {"members", g.members},
                      {"enqueues", g.enqueues},
                      {"entered", g.entered},
                      {"inside", g.inside},
                      {"since", g.since},
                      {"call", g.call},
                      {"op", g.op},
                      {"bytes", g.bytes}});
  }
  return {{"rank", f.rank},
          {"pid", f.pid},
          {"host", f.host},
          {"alive", f.alive},
          {"stopped", f.stopped},
          {"stopped_seconds", f.stopped_seconds},
          {"frozen", f.frozen},
          {"in_kernel", f.in_kernel},
          {"writer_seconds", f.writer_seconds},
          {"phase", static_cast<int>(f.phase)},
          {"phase_seconds", f.phase_seconds},
          {"usual_phase_seconds", f.usual_phase_seconds},
          {"step", f.step},
          {"groups", groups},
          {"last", f.last},
          {"reached", f.reached},
          {"last_open", f.last_open},
          {"last_seconds", f.last_seconds},
          {"usual_seconds", f.usual_seconds},
          {"usual_step", f.usual_step},
          {"usual_save", f.usual_save},
          {"memory", f.memory},
          {"waits", f.waits ? json(*f.waits) : json()}};
}

RankFacts facts_from_json(const json& j) {
  RankFacts f;
  f.rank = j.at("rank"), f.pid = j.at("pid"), f.alive = j.at("alive"), f.stopped = j.at("stopped");
  f.stopped_seconds = j.at("stopped_seconds"), f.in_kernel = j.at("in_kernel");
  f.writer_seconds = j.at("writer_seconds");
  f.frozen = j.at("frozen");
  f.host = j.at("host").get<std::string>().substr(0, kMostText);
  f.phase =
      static_cast<watch::Phase>(std::clamp(j.at("phase").get<int>(), 0, static_cast<int>(watch::Phase::end)));
  f.phase_seconds = j.at("phase_seconds"), f.usual_phase_seconds = j.at("usual_phase_seconds");
  f.step = j.at("step");
  for (const json& one : j.at("groups")) {
    GroupFacts g;
    g.name = one.at("name").get<std::string>().substr(0, kMostText);
    g.members = one.at("members").get<std::vector<int>>();
    g.enqueues = one.at("enqueues"), g.entered = one.at("entered"), g.inside = one.at("inside");
    g.since = one.at("since"), g.call = one.at("call").get<std::string>().substr(0, kMostText);
    g.op = one.at("op"), g.bytes = one.at("bytes");
    if (f.groups.size() < kMostGroups && g.members.size() <= kMostMembers) f.groups.push_back(std::move(g));
  }
  f.last = j.at("last").get<std::string>().substr(0, kMostText);
  f.reached = j.at("reached").get<std::string>().substr(0, kMostText);
  f.last_open = j.at("last_open"), f.last_seconds = j.at("last_seconds");
  f.usual_seconds = j.at("usual_seconds"), f.usual_step = j.at("usual_step");
  f.usual_save = j.at("usual_save");
  f.memory = j.at("memory");
  if (!j.at("waits").is_null()) f.waits = j.at("waits").get<double>();
  return f;
}

}  // namespace lockstep::watch

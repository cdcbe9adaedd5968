#include "lockstep/launch/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

namespace {

constexpr size_t kReportLines = 10;

std::string one_line(const std::string& text) {
  const std::vector<std::string> lines = base::split_lines(text);
  std::string line = lines.empty() ? "" : lines.front();
  std::erase_if(line, [](char letter) { return static_cast<unsigned char>(letter) < 32; });
  return base::cut_to_width(line, 200);
}

std::string name_of(const Failure& failure) {
  return failure.rank >= 0 ? fmt::format("rank {}", failure.rank) : fmt::format("node {}", failure.node);
}

}  // namespace

nlohmann::json to_json(const Failure& f) {
  // Lines of a log may be any bytes; what is not UTF-8 is replaced where this is dumped.
  return {{"rank", f.rank},       {"local_rank", f.local_rank},
          {"node", f.node},       {"host", f.host},
          {"pid", f.pid},         {"code", f.code},
          {"ending", f.ending},   {"unix_micros", f.unix_micros},
          {"seconds", f.seconds}, {"message", f.message},
          {"log", f.log},         {"last_lines", f.last_lines},
          {"shown", f.shown},     {"hang", f.hang},
          {"final", f.final}};
}

Failure failure_from_json(const nlohmann::json& json) {
  Failure f;
  f.rank = json.at("rank"), f.local_rank = json.at("local_rank"), f.node = json.at("node");
  f.host = json.at("host"), f.pid = json.at("pid"), f.code = json.at("code"), f.ending = json.at("ending");
  f.unix_micros = json.at("unix_micros"), f.seconds = json.at("seconds"), f.message = json.at("message");
  f.log = json.at("log"), f.last_lines = json.at("last_lines").get<std::vector<std::string>>();
  f.shown = json.at("shown"), f.hang = json.value("hang", false);
  f.final = json.value("final", false);
  return f;
}

void say_final(const std::string& message) {
  const auto path = process_variable("TORCHELASTIC_ERROR_FILE");
  if (!path || path->empty()) return;
  const nlohmann::json word{{"message", {{"message", message}, {"final", true}}}};
  std::ofstream(*path) << word.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

// {"message": {"message": "...", "extraInfo": {"timestamp": "1700000000"}}}, or {"message": "..."}.
void take_error_file(const std::string& path, Failure& failure) {
  const base::ReadResult file = base::try_read_file(path, 16 << 20);
  if (!file.problem.empty() || file.text.empty()) return;
  const nlohmann::json json = nlohmann::json::parse(file.text, nullptr, false);
  if (!json.is_object() || !json.contains("message")) return;
  const nlohmann::json& message = json["message"];
  if (message.is_string()) failure.message = one_line(message.get<std::string>());
  if (!message.is_object()) return;
  if (message.contains("message") && message["message"].is_string()) {
    failure.message = one_line(message["message"].get<std::string>());
  }
  if (message.contains("final")) failure.final = message["final"] == true;
  if (!message.contains("extraInfo") || !message["extraInfo"].is_object()) return;
  const nlohmann::json stamp = message["extraInfo"].value("timestamp", nlohmann::json());
  int64_t seconds = stamp.is_number_integer() ? stamp.get<int64_t>() : 0;
  if (stamp.is_string()) seconds = base::leading_number(stamp.get_ref<const std::string&>()).value_or(0);
  if (seconds > 0 && seconds < int64_t{1} << 40) failure.unix_micros = seconds * 1000000;
}

void sort_by_time(std::vector<Failure>& failures) {
  std::stable_sort(failures.begin(), failures.end(),
                   [](const Failure& a, const Failure& b) { return a.unix_micros < b.unix_micros; });
}

std::string failure_report(const std::vector<Failure>& failures, int restarts_left) {
  const Failure& first = failures.front();
  const char* what = first.code == kPreempted ? "was preempted"
                     : failures.size() > 1    ? "failed first"
                                              : "failed";
  std::vector<std::string> head = {
      first.hang ? "lockstep: the run hangs: " + first.ending
                 : fmt::format("lockstep: {} on {} {}: {}", name_of(first), first.host, what, first.ending)};
  if (first.rank >= 0 && !first.hang) {
    head.push_back(fmt::format("  node {}, local rank {}, process {}, {} after its start", first.node,
                               first.local_rank, first.pid, base::human_duration(first.seconds)));
  }
  if (!first.message.empty()) head.push_back("  it says: " + first.message);
  if (!first.log.empty()) head.push_back("  log: " + first.log);
  std::vector<std::string> others, tail;
  for (size_t k = 1; k < failures.size() && k <= 4; ++k) {
    others.push_back(fmt::format("{} ({})", name_of(failures[k]), failures[k].ending));
  }
  if (failures.size() > 5) others.push_back(fmt::format("and {} more", failures.size() - 5));
  if (!others.empty()) tail.push_back("  after it: " + base::join(others, ", "));
  if (restarts_left >= 0) {
    tail.push_back(fmt::format("  restarting all ranks; {} restart{} left", restarts_left,
                               restarts_left == 1 ? "" : "s"));
  }
  const size_t room = kReportLines - head.size() - tail.size(),
               lines = first.shown ? 0 : first.last_lines.size();
  for (size_t k = lines - std::min(lines, room); k < lines; ++k) head.push_back("  | " + first.last_lines[k]);
  head.insert(head.end(), tail.begin(), tail.end());
  return base::join(head, "\n") + "\n";
}

}  // namespace lockstep::launch

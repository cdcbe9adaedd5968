#include "lockstep/see/run_events.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/text.h"

namespace lockstep::see {

std::string ending_of(const std::string& event) {
  struct Ending {
    const char *event, *state;
  };
  static constexpr Ending kEndings[] = {
      {"finished", "finished"}, {"preempted", "preempted"}, {"hang", "failed"},    {"rank_failed", "failed"},
      {"oom", "failed"},        {"nonfinite", "failed"},    {"diverged", "failed"}};
  for (const Ending& one : kEndings) {
    if (event == one.event) return one.state;
  }
  return "";
}

double unix_seconds(std::string_view time) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  if (time.size() < kForm.size()) return 0;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == '0' ? time[i] < '0' || time[i] > '9' : time[i] != kForm[i]) return 0;
  }
  const auto number = [&](size_t from, size_t size) {
    int value = 0;
    for (size_t i = from; i < from + size; ++i) value = 10 * value + (time[i] - '0');
    return value;
  };
  const std::chrono::year_month_day date(std::chrono::year(number(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 2))));
  if (!date.ok()) return 0;
  double fraction = 0, place = 0.1;
  for (size_t i = kForm.size() + 1;
       i < time.size() && time[kForm.size()] == '.' && time[i] >= '0' && time[i] <= '9'; ++i, place /= 10)
    fraction += place * (time[i] - '0');
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2) +
         fraction;
}

std::string read_tail(const std::string& path, int64_t most_bytes) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat now {};
  if (file.number < 0 || ::fstat(file.number, &now) != 0 || !S_ISREG(now.st_mode)) return "";
  std::string text(static_cast<size_t>(std::min<int64_t>(most_bytes, now.st_size)), '\0');
  const ssize_t got =
      ::pread(file.number, text.data(), text.size(), now.st_size - static_cast<int64_t>(text.size()));
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

std::vector<RunEvent> read_events(const std::string& folder, int64_t most_bytes) {
  std::vector<RunEvent> events;
  for (const std::string& line : base::split_lines(read_tail(folder + "/events.jsonl", most_bytes))) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    const auto text = [&](const char* key) {
      const auto found = json.find(key);
      return found != json.end() && found->is_string() ? found->get<std::string>() : "";
    };
    if (!json.is_object() || text("event").empty()) continue;
    const auto step = json.find("step");
    events.push_back({.name = text("event"),
                      .why = text("why"),
                      .step = step != json.end() && step->is_number_integer() ? step->get<int64_t>() : 0,
                      .seconds = unix_seconds(text("time"))});
  }
  return events;
}

}  // namespace lockstep::see

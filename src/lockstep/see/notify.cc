#include "lockstep/see/notify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/see/run_log.h"

namespace lockstep::see {

namespace {

struct Row {
  const char* event;
  const char* kind;
  bool ends;  // nothing follows it but a restart
};
constexpr Row kRows[] = {{"rank_failed", "failure", true}, {"oom", "failure", true},
                         {"nonfinite", "failure", true},   {"diverged", "failure", true},
                         {"hang", "hang", true},           {"preempted", "preemption", true},
                         {"loss_spike", "spike", false},   {"finished", "end", true}};

const Row* row_of(const std::string& event) {
  for (const Row& row : kRows) {
    if (event == row.event) return &row;
  }
  return nullptr;
}

constexpr int64_t kMostBytes = 64 << 20;

}  // namespace

std::vector<std::string> notice_kinds() {
  std::vector<std::string> kinds;
  for (const Row& row : kRows) {
    if (std::find(kinds.begin(), kinds.end(), row.kind) == kinds.end()) kinds.push_back(row.kind);
  }
  return kinds;
}

Notifier::Notifier(std::string folder, const std::string& kinds)
    : folder_(std::move(folder)), name_(name_of_run(folder_)), host_(base::host_name()) {
  const std::vector<std::string> known = notice_kinds();
  for (size_t begin = 0; begin <= kinds.size();) {
    const size_t comma = std::min(kinds.find(',', begin), kinds.size());
    const std::string kind = kinds.substr(begin, comma - begin);
    begin = comma + 1;
    if (kind.empty()) continue;
    if (std::find(known.begin(), known.end(), kind) == known.end())
      throw base::ConfigError(109, fmt::format("--on {}: expected one or more of {}", base::quoted(kind),
                                               base::join(known, ", ")));
    wanted_.insert(kind);
  }
  if (wanted_.empty()) wanted_.insert(known.begin(), known.end());
  const std::vector<RunEvent> events = read_events(folder_, kMostBytes);
  seen_ = events.size();
  if (!events.empty()) last_ = events.back();
}

Notice Notifier::notice_of(const std::string& kind, const RunEvent& event) const {
  return {.kind = kind,
          .text = fmt::format("{} on {}: {}{}{}", name_, host_, kind,
                              event.step > 0 ? fmt::format(" at step {}", event.step) : "",
                              event.why.empty() ? "" : ": " + event.why)};
}

std::vector<Notice> Notifier::fresh() {
  std::vector<Notice> notices;
  const std::vector<RunEvent> events = read_events(folder_, kMostBytes);
  if (events.size() < seen_) seen_ = 0;  // the run was started over
  for (; seen_ < events.size(); ++seen_) {
    last_ = events[seen_];
    const Row* row = row_of(last_.name);
    if (row != nullptr && wants(row->kind)) notices.push_back(notice_of(row->kind, last_));
  }
  return notices;
}

std::vector<Notice> Notifier::ended() {
  std::vector<Notice> notices = fresh();
  const Row* row = row_of(last_.name);
  if ((row != nullptr && row->ends) || !wants("failure")) return notices;
  RunEvent silent = last_;
  silent.why =
      "its processes ended and nothing in its log says why: killed, out of memory, or its recipe was "
      "rejected";
  notices.push_back(notice_of("failure", silent));
  return notices;
}

std::string slack_body(const Notice& notice) {
  return nlohmann::json{{"text", notice.text}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string webhook_address(const std::string& where) {
  std::string address;
  if (where.starts_with("env:")) {
    const char* const value = std::getenv(where.c_str() + 4);  // a name of the user's own
    if (value == nullptr)
      throw base::ConfigError(766, fmt::format("--notify {}: that variable is not set", where));
    address = value;
  } else if (where.starts_with("file:")) {
    std::string path = where.substr(5);
    if (path.starts_with("~/")) path.replace(0, 1, base::environment("HOME").value_or("~"));  // no shell does
    const base::ReadResult file = base::try_read_file(path, 4096);
    if (!file.problem.empty())
      throw base::ConfigError(766, fmt::format("--notify {}: {}", where, file.problem));
    address = file.text;
  } else {
    throw base::ConfigError(
        766,
        "--notify takes env:NAME or file:PATH, where the webhook's address is: the address is a "
        "secret and would be seen in lists of processes");
  }
  return std::string(base::trimmed(address));
}

}  // namespace lockstep::see

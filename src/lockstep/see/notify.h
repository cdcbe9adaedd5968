// What of a run is worth a message to people who are elsewhere, and the message in Slack's form.
//
//     Notifier notifier("runs/first", "end,failure");
//     for (const Notice& notice : notifier.fresh()) post_json(url, slack_body(notice), ...);
//
// Reads events.jsonl from outside; the run knows nothing of it and is held up by nothing.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lockstep/see/run_events.h"

namespace lockstep::see {

struct Notice {
  std::string kind;  // "failure", "hang", "preemption", "spike", "end"
  std::string text;  // "first on host7: failure at step 57: rank 3 was killed by signal 9"
};

std::vector<std::string> notice_kinds();

class Notifier {
 public:
  // `kinds`: those wanted, with commas; empty: all. ConfigError 109 for others. Events that are already there
  // are not news.
  Notifier(std::string folder, const std::string& kinds);
  std::vector<Notice> fresh();  // since the last call
  // The run's processes are gone: news if nothing in the log says why.
  std::vector<Notice> ended();

 private:
  Notice notice_of(const std::string& kind, const RunEvent& event) const;
  bool wants(const std::string& kind) const { return wanted_.contains(kind); }
  std::string folder_, name_, host_;
  std::set<std::string> wanted_;
  size_t seen_ = 0;
  RunEvent last_;
};

std::string slack_body(const Notice& notice);  // {"text": ...}

// "env:NAME" or "file:PATH" to the address that is there. ConfigError 766; no message contains the address.
std::string webhook_address(const std::string& where);

}  // namespace lockstep::see

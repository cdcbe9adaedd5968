// What happened to a run, from the end of its events.jsonl: starts, restarts, failures, checkpoints.
//
//     for (const RunEvent& event : read_events("runs/first")) ... event.name, event.step, event.why ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::see {

struct RunEvent {
  std::string name, why;  // "rank_failed", and the sentence
  int64_t step = 0;
  double seconds = 0;  // since 1970; 0: the line does not tell
};

constexpr int64_t kEventBytes = 1 << 20;

// In the file's order, those in its last `most_bytes`. Lines that are none are left out; without the file
// there are none.
std::vector<RunEvent> read_events(const std::string& folder, int64_t most_bytes = kEventBytes);

// How a run has ended whose last event this is: "finished", "preempted", "failed"; "": it has not, as far as
// that tells.
std::string ending_of(const std::string& event);

// "2026-11-18T04:49:46.492Z"; 0: it is no such time.
double unix_seconds(std::string_view time);

// The last so many bytes of a file; empty where it cannot be read.
std::string read_tail(const std::string& path, int64_t most_bytes);

}  // namespace lockstep::see

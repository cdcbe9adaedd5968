// What the launcher adds to a run's events.jsonl: what ranks cannot tell because they are gone.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::launch {

// Appends one line, whole or not at all; nothing where there is no folder or it cannot be written: an event
// is no reason to end a run.
void add_event(const std::string& run_folder, const std::string& name, const std::string& why, int64_t step);

}  // namespace lockstep::launch

#include "lockstep/launch/run_events.h"

#include <filesystem>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/launch/rendezvous/round_state.h"

namespace lockstep::launch {

void add_event(const std::string& run_folder, const std::string& name, const std::string& why, int64_t step) {
  if (run_folder.empty() || !std::filesystem::exists(run_folder)) return;
  nlohmann::json line{{"event", name}, {"why", why}, {"time", base::utc_timestamp()}};
  if (step >= 0) line["step"] = step;
  try {
    base::LineWriter(run_folder + "/events.jsonl").write(write_json(line));
  } catch (const base::IoError&) {
    // A full disk is told by whoever needs it.
  }
}

}  // namespace lockstep::launch

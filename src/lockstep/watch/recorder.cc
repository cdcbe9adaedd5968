#include "lockstep/watch/recorder.h"

#include <fmt/format.h>

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::watch {

using nlohmann::json;

const char* name_of(Phase phase) {
  static constexpr const char* kNames[] = {"start", "train", "evaluate", "save", "end"};
  return kNames[static_cast<size_t>(phase)];
}

std::string ring_path(const std::string& folder, int rank) {
  return fmt::format("{}/trace/rank-{}.ring", folder, rank);
}
std::string phase_path(const std::string& folder, int rank) {
  return fmt::format("{}/trace/rank-{}.phase", folder, rank);
}
std::string names_path(const std::string& folder, int rank) {
  return fmt::format("{}/trace/rank-{}.json", folder, rank);
}

Recorder::Recorder(const std::string& folder, int rank) : folder_(folder), rank_(rank) {
  try {
    base::make_folders(folder + "/trace");
    phases_ = std::make_unique<base::RingWriter>(phase_path(folder, rank),
                                                 base::RingOptions{.rank = rank, .entries = 64});
    ring_ = std::make_unique<base::RingWriter>(ring_path(folder, rank), base::RingOptions{.rank = rank});
  } catch (const base::IoError& error) {
    problem_ = error.what();
    ring_.reset();
    phases_.reset();
  }
  enter(Phase::start, 0);
}

void Recorder::enter(Phase phase, int64_t step) {
  if (!phases_) return;
  if (entered_) phases_->finish(ticket_);
  ticket_ = phases_->enqueue({.step = step, .op = static_cast<uint16_t>(phase)});
  phases_->start(ticket_);
  entered_ = true;
}

void Recorder::describe(const RecordedNames& names) {
  if (!ring_) return;
  json groups = json::array();
  for (const RecordedNames::Group& group : names.groups) {
    groups.push_back({{"name", group.name},
                      {"engine", group.engine},
                      {"enqueues", group.enqueues},
                      {"members", group.members}});
  }
  std::ofstream(names_path(folder_, rank_)) << json{{"rank", rank_},
                                                    {"pid", ::getpid()},
                                                    {"host", base::host_name()},
                                                    {"groups", groups},
                                                    {"instructions", names.instructions},
                                                    {"lanes", names.lanes}}
                                                   .dump()
                                            << "\n";
}

}  // namespace lockstep::watch

#include "lockstep/checkpoint/saving/save_team.h"

#include <fmt/format.h>

#include <set>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/saving/file_writer.h"
#include "lockstep/checkpoint/saving/piece_message.h"
#include "lockstep/checkpoint/saving/range_writer.h"
#include "lockstep/checkpoint/step_folders.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kGlance = std::chrono::milliseconds(500);  // how long a wait is deaf to give_up()
constexpr auto kLongest = std::chrono::hours(1);          // that another rank may take for its part

Json outcome_json(const Outcome& o) {
  return {{"step", o.step}, {"folder", o.folder}, {"error", o.error},
          {"why", o.why},   {"bytes", o.bytes},   {"seconds", o.seconds}};
}

Outcome outcome_of(const Json& json) {
  return {json.at("step"), json.at("folder"), json.at("error"),
          json.at("why"),  json.at("bytes"),  json.at("seconds")};
}

// The same contents, whatever the small files say.
bool same_files(const std::vector<FileSummary>& standing, const std::vector<FileSummary>& ours) {
  return std::all_of(ours.begin(), ours.end(), [&](const FileSummary& file) {
    return std::any_of(standing.begin(), standing.end(), [&](const FileSummary& other) {
      return other.name == file.name && other.bytes == file.bytes && other.sums == file.sums;
    });
  });
}

}  // namespace

SaveTeam::SaveTeam(Member member, std::vector<Piece> own, SaveOptions options, const std::vector<Whole>& held)
    : member_(std::move(member)),
      own_(std::move(own)),
      options_(std::move(options)),
      disk_(options_.disk != nullptr ? *options_.disk : system_disk()),
      home_(options_.run_folder) {
  offsets_ = piece_offsets(own_, memory_bytes_);
  agree_on_tensors(held);
  plan_ = saves_adapter() ? plan_adapter_files(tensors_, options_.most_file_bytes)
                          : plan_files(tensors_, options_.most_file_bytes);
  writer_ = std::make_unique<PartWriter>(plan_, tensors_, own_, disk_);
}

SaveTeam::~SaveTeam() = default;

std::string SaveTeam::key(const std::string& what) const {
  return fmt::format("checkpoint/{}/{}/{}", name_, saves_, what);
}

void SaveTeam::tell(const std::string& what, const std::string& value) {
  if (member_.store) member_.store->set(key(what), value);
}

std::string SaveTeam::hear(const std::string& what) {
  for (const auto until = Clock::now() + kLongest;;) {
    try {
      return member_.store->get(key(what), kGlance);
    } catch (const comm::StoreTimeoutError&) {
      if (Clock::now() > until) throw;
      if (stop_) throw base::IoError(814, "the save was aborted: the run is ending");
    }
  }
}

// The first rank learns who writes what, makes sure that nothing is missing, and tells everyone of all
// tensors.
void SaveTeam::agree_on_tensors(const std::vector<Whole>& held) {
  std::vector<Piece> known = own_;  // and nothing of what others write
  for (const Whole& tensor : held) known.push_back(part_of(whole_piece(tensor), 0, 0));
  if (!member_.store) {
    tensors_ = check_cover({known});
    return;
  }
  name_ = std::to_string(member_.store->add(fmt::format("checkpoint/teams/{}", member_.rank), 1));
  tell(fmt::format("pieces/{}", member_.rank), message_of(known));
  if (member_.rank != 0) {
    const std::string told = hear("tensors");
    LS_ASSERT(!told.empty(),
              "the ranks' pieces do not cover every tensor exactly once; see the log of rank 0");
    for (const Piece& piece : pieces_of(told)) tensors_.push_back(piece.tensor);
    return;
  }
  std::vector<std::vector<Piece>> all;
  for (int rank = 0; rank < member_.ranks; ++rank)
    all.push_back(pieces_of(hear(fmt::format("pieces/{}", rank))));
  for (int rank = 0; rank < member_.ranks; ++rank) member_.store->remove(key(fmt::format("pieces/{}", rank)));
  try {
    tensors_ = check_cover(all);
  } catch (const base::Bug&) {
    tell("tensors", "");  // nobody shall wait for it
    throw;
  }
  std::vector<Piece> wholes;
  for (const Whole& tensor : tensors_) wholes.push_back(whole_piece(tensor));
  tell("tensors", message_of(wholes));
}

Outcome SaveTeam::save(const Facts& facts, std::span<const std::byte> memory) {
  LS_ASSERT(static_cast<int64_t>(memory.size()) >= memory_bytes_);
  ++saves_;
  turn_ = 0;
  try {
    return member_.rank == 0 ? lead(facts, memory) : follow(memory);
  } catch (const base::Error& error) {  // the store is gone, or we were told to end
    return {.step = facts.step, .folder = "", .error = error.number(), .why = error.what()};
  }
}

Part SaveTeam::own_part(Order order, const std::string& folder, std::span<const std::byte> memory) {
  try {
    return order == Order::compare ? writer_->sum(memory) : writer_->write(folder, memory, stop_);
  } catch (const base::Error& error) {
    Part failed(plan_);
    failed.error = error.number();
    failed.why = member_.ranks == 1
                     ? error.what()
                     : fmt::format("rank {} on {}: {}", member_.rank, base::host_name(), error.what());
    return failed;
  }
}

// The first rank's order, carried out by all; the sum of what they did, or the first failure.
Part SaveTeam::everyones(Order order, const std::string& folder, std::span<const std::byte> memory) {
  const int turn = turn_++;
  tell(fmt::format("order/{}", turn), Json{{"order", order}, {"folder", folder}}.dump());
  Part all = own_part(order, folder, memory);
  for (int rank = 1; rank < member_.ranks; ++rank) {
    const std::string what = fmt::format("part/{}/{}", turn, rank);
    const Part part = read_part(hear(what), plan_);
    member_.store->remove(key(what));
    if (all.error == 0 && part.error != 0) all.error = part.error, all.why = part.why;
    if (all.error == 0) all.merge(part);
  }
  return all;
}

Outcome SaveTeam::follow(std::span<const std::byte> memory) {
  for (;;) {
    const int turn = turn_++;
    const Json told = Json::parse(hear(fmt::format("order/{}", turn)));
    const auto order = told.at("order").get<Order>();
    if (order == Order::done) return outcome_of(told.at("outcome"));
    tell(fmt::format("part/{}/{}", turn, member_.rank),
         own_part(order, told.at("folder").get<std::string>(), memory).message());
  }
}

std::vector<FileSummary> SaveTeam::summaries(const Part& all) const {
  std::vector<FileSummary> files;
  for (size_t f = 0; f < plan_.size(); ++f) {
    ChunkSums sums = all.files[f];
    sums.add(0, std::as_bytes(std::span(plan_[f].header)));
    files.push_back({plan_[f].name, plan_[f].bytes, sums.finish()});
  }
  return files;
}

std::string SaveTeam::params_hash(const Part& all) const {
  return saves_adapter() ? options_.whole_hash(all.hashes, tensors_) : all.hashes.finish(tensors_);
}

// A run that was stopped right after it resumed saves the step that it came from. The one that stands is then
// worth more than a new one: replacing it could fail and leave none.
bool SaveTeam::stands_already(const std::string& folder, const Facts& facts,
                              std::span<const std::byte> memory) {
  std::optional<Manifest> manifest;
  try {
    const Opened standing(folder);
    manifest = standing.manifest();
    if (!manifest || manifest->step != facts.step || manifest->state != facts.state ||
        manifest->recipe_toml != facts.recipe_toml)
      return false;
    standing.check_all();
  } catch (const base::Error&) {
    return false;
  }
  const Part all = everyones(Order::compare, folder, memory);
  return all.error == 0 && params_hash(all) == manifest->params_hash &&
         same_files(manifest->files, summaries(all));
}

// An empty folder with the small files, and files of the right sizes and beginnings. Their names are on the
// disk once lead() has synced the folder.
std::vector<FileSummary> SaveTeam::prepare(const std::string& folder, const Facts& facts) {
  home_.check();
  remove_broken(options_.run_folder, disk_);  // first, for their room
  check_disk(remove_checkpoint(folder, disk_), folder);
  check_disk(disk_.make_folder(folder), folder);
  std::vector<FileSummary> small;
  if (saves_adapter()) {
    small.push_back(write_text(folder + "/" + kAdapterConfigName, facts.adapter_json, disk_));
  } else {
    small.push_back(write_text(folder + "/" + kIndexName, index_text(plan_), disk_));
  }
  if (!facts.config_json.empty())
    small.push_back(write_text(folder + "/config.json", facts.config_json, disk_));
  for (const PlannedFile& planned : plan_) {
    const std::string path = folder + "/" + planned.name;
    const int file = disk_.create(path);
    check_disk(file, path);
    const int reserved = disk_.reserve(file, planned.bytes);
    RangeWriter writer(disk_, file, path);
    try {
      check_disk(reserved, path);
      writer.write(std::as_bytes(std::span(planned.header)), 0);
      check_disk(disk_.sync(file), path);
    } catch (...) {
      disk_.close(file);
      throw;
    }
    check_disk(disk_.close(file), path);
  }
  check_disk(disk_.sync_folder(checkpoints_folder(options_.run_folder)), folder);
  check_disk(disk_.sync_folder(options_.run_folder), folder);
  return small;
}

namespace {

// Said only where it cannot be seen: a weight without an "m" may be frozen, or its optimizer keeps other
// things.
std::optional<std::vector<std::string>> statistics_of(const std::vector<Whole>& tensors) {
  std::set<std::string> moments;
  for (const Whole& one : tensors) {
    if (one.kind == Kind::moment) moments.insert(one.name);
  }
  bool seen = true;
  std::vector<std::string> statistics;
  for (const Whole& one : tensors) {
    seen &= one.kind != Kind::weight || moments.empty() || moments.contains(one.name + ".m");
    if (one.kind == Kind::statistic) statistics.push_back(one.name);
  }
  return seen ? std::nullopt : std::optional(statistics);
}

}  // namespace

Outcome SaveTeam::lead(const Facts& facts, std::span<const std::byte> memory) {
  const auto began = Clock::now();
  Outcome outcome{.step = facts.step, .folder = step_folder(options_.run_folder, facts.step)};
  bool made = false;
  try {
    if (!stands_already(outcome.folder, facts, memory)) {
      made = true;
      std::vector<FileSummary> files = prepare(outcome.folder, facts);
      const Part all = everyones(Order::write, outcome.folder, memory);
      outcome.bytes = all.bytes;
      outcome.error = all.error;
      outcome.why = all.why;
      if (all.error == 0) {
        for (FileSummary& file : summaries(all)) files.push_back(std::move(file));
        check_disk(disk_.sync_folder(outcome.folder), outcome.folder);
        write_manifest(outcome.folder,
                       {.step = facts.step,
                        .recipe_toml = facts.recipe_toml,
                        .params_hash = params_hash(all),
                        .layout = facts.layout,
                        .state = facts.state,
                        .files = files,
                        .statistics = statistics_of(tensors_),
                        .base = facts.base,
                        .own_hash = saves_adapter() ? all.hashes.finish(tensors_) : ""},
                       disk_);
      }
    }
  } catch (const base::Error& error) {
    outcome.error = error.number();
    outcome.why = error.what();
  }
  outcome.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  if (outcome.error == 0) {
    tidy(outcome.folder, facts.step);
  } else {
    if (made) remove_checkpoint(outcome.folder, disk_);  // gives the room back
    outcome.folder.clear();
  }
  tell(fmt::format("order/{}", turn_),
       Json{{"order", Order::done}, {"outcome", outcome_json(outcome)}}.dump());
  return outcome;
}

// The hint is for people and scripts; nothing in Lockstep trusts it, so a failure is not one of the save.
void SaveTeam::tidy(const std::string& folder, int64_t step) {
  try {
    write_text(checkpoints_folder(options_.run_folder) + "/latest",
               std::filesystem::path(folder).filename().string() + "\n", disk_);
    remove_older(options_.run_folder, step, options_.retention, disk_);
  } catch (const base::Error&) {
  }
}

}  // namespace lockstep::checkpoint

#include "lockstep/watch/launch_status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::watch {

namespace {

using nlohmann::json;
constexpr std::chrono::milliseconds kInterval(1000);
constexpr int64_t kMostBytes = 8 << 20;

}  // namespace

std::string LaunchStatus::to_text() const {
  json all = json::array();
  for (const Rank& rank : ranks) {
    json one{{"rank", rank.rank}, {"pid", rank.pid}, {"last_line", rank.last_line}};
    if (rank.exit_code) one["exit_code"] = *rank.exit_code, one["ending"] = rank.ending;
    all.push_back(std::move(one));
  }
  const json text{{"pid", pid},
                  {"birth", birth.to_text()},
                  {"command", command},
                  {"folder", folder},
                  {"host", host},
                  {"node", node},
                  {"nodes", nodes},
                  {"restarts", restarts},
                  {"started_micros", started_micros},
                  {"ranks", all}};
  return text.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<LaunchStatus> LaunchStatus::from_text(const std::string& text) {
  LaunchStatus status;
  try {
    const json all = json::parse(text);
    status.birth = base::ProcessBirth::from_text(all.value("birth", ""));
    status.pid = all.at("pid"), status.command = all.at("command"), status.folder = all.at("folder");
    status.host = all.at("host"), status.node = all.at("node"), status.nodes = all.at("nodes");
    status.restarts = all.at("restarts"), status.started_micros = all.at("started_micros");
    for (const json& one : all.at("ranks")) {
      Rank& rank = status.ranks.emplace_back();
      rank.rank = one.at("rank"), rank.pid = one.at("pid"), rank.last_line = one.at("last_line");
      if (one.contains("exit_code")) rank.exit_code = one["exit_code"], rank.ending = one.at("ending");
    }
  } catch (const json::exception&) {
    return std::nullopt;  // half written, or another version's
  }
  return status;
}

LaunchStatusFile::LaunchStatusFile(const std::string& folder)
    : path_(fmt::format("{}/launch-{}.json", folder, ::getpid())) {}

LaunchStatusFile::~LaunchStatusFile() { ::unlink(path_.c_str()); }

bool LaunchStatusFile::due() const { return std::chrono::steady_clock::now() - at_ >= kInterval; }

void LaunchStatusFile::write(const LaunchStatus& status) {
  at_ = std::chrono::steady_clock::now();
  std::string text = status.to_text();
  if (text == written_) return;
  // Renamed, so that a reader sees one or the other; not flushed to a disk: it is of no use after a crash.
  const std::string draft = path_ + ".new";
  std::FILE* const file = std::fopen(draft.c_str(), "wbe");
  if (file == nullptr) return;
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) == 0 && whole && std::rename(draft.c_str(), path_.c_str()) == 0)
    written_ = std::move(text);
}

std::vector<LaunchStatus> launches_in(const std::string& folder) {
  std::vector<LaunchStatus> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (!name.starts_with("launch-") || !name.ends_with(".json")) continue;
    const auto status = LaunchStatus::from_text(base::try_read_file(at->path().string(), kMostBytes).text);
    if (!status || status->host != base::host_name()) continue;
    if (base::still_lives(status->pid, status->birth)) {
      found.push_back(*status);
    } else {
      std::error_code ignored;
      std::filesystem::remove(at->path(), ignored);
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return found;
}

}  // namespace lockstep::watch

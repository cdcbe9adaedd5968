#include "lockstep/launch/process/rank_logs.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"

namespace lockstep::launch {

namespace {

std::string temporary_parent() {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::temp_directory_path(ignored);
  return ignored ? "/tmp" : path.string();
}

// mkdtemp: a folder that nobody else can read or has prepared.
std::string make_unique_folder(const std::string& parent, std::string name) {
  base::make_folders(parent);
  for (char& letter : name) {
    if (letter == '/' || letter == '\0') letter = '_';
  }
  std::string path = parent + "/" + name + "_XXXXXX";
  if (!::mkdtemp(path.data())) {
    const char* const remedy =
        parent == temporary_parent() ? "; set TMPDIR to a folder that can be written to" : "";
    throw base::IoError(803, fmt::format("cannot create {}: {}{}", path, std::strerror(errno), remedy));
  }
  return path;
}

}  // namespace

std::string run_log(const std::string& run_logs, int attempt, int rank) {
  return fmt::format("{}/attempt-{}/rank-{}.log", run_logs, attempt, rank);
}

RankLogs::RankLogs(const Options& options, std::string run_logs)
    : options_(options), run_logs_(std::move(run_logs)) {
  const auto any = [](const StreamChoice& choice) {
    return choice.everyone != kNone || !choice.by_local_rank.empty();
  };
  const bool chosen = run_logs_.empty() && !options.log_dir.empty();
  root_ =
      make_unique_folder(chosen ? options.log_dir : temporary_parent(), chosen ? options.run_id : "lockstep");
  keep_ = chosen || (run_logs_.empty() && (any(options.redirects) || any(options.tee)));
}

RankLogs::~RankLogs() {
  std::error_code ignored;
  if (!keep_) std::filesystem::remove_all(root_, ignored);
}

std::string RankLogs::folder_of(const LogSeat& seat) const {
  return fmt::format("{}/attempt_{}/{}", root_, seat.round, seat.local_rank);
}

// torchrun's default is [role + local rank]; its template variable is honoured.
std::string RankLogs::prefix_of(const LogSeat& seat) const {
  std::string text =
      process_variable("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("[${role_name}${local_rank}]:");
  const std::pair<std::string, std::string> values[] = {{"${role_name}", options_.role},
                                                        {"${local_rank}", std::to_string(seat.local_rank)},
                                                        {"${rank}", std::to_string(seat.rank)}};
  for (const auto& [name, value] : values) {
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size()) {
      text.replace(at, name.size(), value);
    }
  }
  return text;
}

StreamPlans RankLogs::plans(const LogSeat& seat) const {
  StreamPlans plans;
  if (!run_logs_.empty()) {
    plans.out.file = run_log(run_logs_, first_attempt_ + seat.round, seat.rank);
    plans.err.file = plans.out.file;
    plans.out.console = plans.err.console = seat.rank == 0;
    return plans;
  }
  const int tee = options_.tee.of(seat.local_rank), redirect = options_.redirects.of(seat.local_rank) | tee;
  const bool shown =
      options_.local_ranks_filter.empty() || options_.local_ranks_filter.contains(seat.local_rank);
  const auto plan = [&](int bit, const char* name, StreamPlan& stream) {
    if (redirect & bit) stream.file = folder_of(seat) + "/" + name;
    stream.console = shown && (!(redirect & bit) || (tee & bit));
    if (tee & bit) stream.prefix = prefix_of(seat);
  };
  plan(kOut, "stdout.log", plans.out);
  plan(kErr, "stderr.log", plans.err);
  return plans;
}

std::string RankLogs::error_file(const LogSeat& seat) const {
  base::make_folders(folder_of(seat));
  return folder_of(seat) + "/error.json";
}

int RankLogs::next_attempt(const std::string& run_logs) {
  int next = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_logs, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("attempt-")) continue;
    const std::optional<int> number = base::parse_number<int>(std::string_view(name).substr(8));
    if (number && *number < 1000000) next = std::max(next, *number + 1);
  }
  return next;
}

}  // namespace lockstep::launch

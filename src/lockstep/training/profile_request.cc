#include "lockstep/training/profile_request.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep::training {

namespace {

constexpr std::chrono::milliseconds kInterval{500};

}  // namespace

ProfileRequest::ProfileRequest(const std::string& run_folder) : path_(run_folder + "/trace/wanted.json") {
  ::unlink(path_.c_str());  // left by somebody who asked a run that had ended
}

int64_t ProfileRequest::steps() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_at_ < kInterval) return 0;
  looked_at_ = now;
  if (::access(path_.c_str(), F_OK) != 0) return 0;
  constexpr int64_t kMostBytes = 4096;
  const nlohmann::json wanted =
      nlohmann::json::parse(base::try_read_file(path_, kMostBytes).text, nullptr, false);
  ::unlink(path_.c_str());
  if (!wanted.is_object() || !wanted.contains("steps") || !wanted["steps"].is_number_integer()) return 0;
  return wanted["steps"].get<int64_t>();
}

std::string profiled_words(const run::Profile& profile) {
  const int64_t last = profile.first_step + profile.steps - 1;
  return fmt::format("step{} {}{}, in trace/profile.json", profile.steps == 1 ? "" : "s", profile.first_step,
                     profile.steps == 1 ? "" : fmt::format(" to {}", last));
}

}  // namespace lockstep::training

#include "lockstep/see/kubeflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/environment.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/see/pace.h"

namespace lockstep::see {

namespace {

constexpr int64_t kMostTokenBytes = 64 << 10;
constexpr size_t kMostMetrics = 32;  // the status is an object in the cluster's store

bool is_header_text(const std::string& token) {
  return std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

std::optional<TrainerServer> trainer_server(std::string* problem) {
  const auto address = base::environment("KUBEFLOW_TRAINER_SERVER_URL");
  if (!address || address->empty()) return std::nullopt;
  const auto url = http::parse_url(base::trimmed(*address));
  if (!url) {
    if (problem != nullptr) *problem = "KUBEFLOW_TRAINER_SERVER_URL is no http:// or https:// address";
    return std::nullopt;
  }
  return TrainerServer{.url = *url,
                       .ca_file = base::environment("KUBEFLOW_TRAINER_SERVER_CA_CERT").value_or(""),
                       .token_file = base::environment("KUBEFLOW_TRAINER_SERVER_TOKEN").value_or("")};
}

http::PostAs credentials_of(const TrainerServer& server) {
  http::PostAs as{.ca_file = server.ca_file};
  if (server.token_file.empty()) return as;
  const base::ReadResult file = base::try_read_file(server.token_file, kMostTokenBytes);
  const std::string token(base::trimmed(file.text));
  if (file.problem.empty() && is_header_text(token)) as.bearer = token;
  return as;
}

std::string trainer_status(const MetricTable& rows, int64_t steps, const TrainerMoment& moment) {
  const int64_t step = rows.empty() ? 0 : rows.step(rows.size() - 1);
  nlohmann::json status{{"lastUpdatedTime", moment.now}, {"metrics", nlohmann::json::array()}};
  if (moment.finished) {
    status["progressPercentage"] = 100, status["estimatedRemainingSeconds"] = 0;
  } else if (steps > 0) {
    const int64_t done = std::clamp<int64_t>(step, 0, steps);
    status["progressPercentage"] = std::min<int64_t>(
        99, static_cast<int64_t>(100.0 * static_cast<double>(done) / static_cast<double>(steps)));
    const double pace = pace_of(rows).lately;
    if (pace > 0)
      status["estimatedRemainingSeconds"] =
          static_cast<int64_t>(std::ceil(pace * static_cast<double>(steps - done)));
  }
  if (!rows.empty()) status["metrics"].push_back({{"name", "step"}, {"value", std::to_string(step)}});
  for (const std::string& name : rows.names()) {
    if (status["metrics"].size() == kMostMetrics) break;
    const double value = rows.last(name);
    if (std::isfinite(value))
      status["metrics"].push_back({{"name", name}, {"value", fmt::format("{:.6g}", value)}});
  }
  return nlohmann::json{{"trainerStatus", status}}.dump(-1, ' ', false,
                                                        nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep::see

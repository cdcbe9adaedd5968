#include "lockstep/see/receipt_parts.h"

#include <algorithm>
#include <map>

#include "lockstep/see/step_time.h"

namespace lockstep::see {

namespace {

constexpr int kSteps = 16;

// Milliseconds of a step by kind; empty where there are no marks.
std::map<std::string, double> marked(const std::string& folder, const run::Receipt& receipt) {
  const double data_share =
      receipt.actual_step_ms > 0 ? std::min(1.0, receipt.data_wait_ms / receipt.actual_step_ms) : 0;
  const StepTime time = step_time_of(timeline_of_rings(folder, {.steps = kSteps}), data_share);
  std::map<std::string, double> kinds;
  if (time.seconds <= 0) return kinds;
  for (const auto& [kind, share] : time.kinds) kinds[kind] += share;
  kinds["communication"] += time.communication;
  kinds["nothing"] += time.idle;
  if (time.data > 0) kinds["waiting for data"] += time.data;
  for (auto& [kind, share] : kinds) share *= time.seconds * 1e3;
  return kinds;
}

}  // namespace

std::vector<ReceiptPart> receipt_parts(const std::string& folder, const run::Receipt& receipt) {
  if (receipt.verbs.empty()) return {};
  std::map<std::string, ReceiptPart> parts;
  for (const auto& [verb, ms] : receipt.verbs) parts[kind_of(verb)].predicted_ms += ms;
  const std::map<std::string, double> actual = marked(folder, receipt);
  if (!actual.empty()) {
    for (auto& [name, part] : parts) part.actual_ms = 0;
    for (const auto& [kind, ms] : actual) parts[kind].actual_ms = ms;
  }
  std::vector<ReceiptPart> all;
  for (auto& [name, part] : parts) {
    part.name = name;
    all.push_back(std::move(part));
  }
  const auto size = [](const ReceiptPart& one) {
    return std::max(one.predicted_ms, one.actual_ms.value_or(0));
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const ReceiptPart& a, const ReceiptPart& b) { return size(a) > size(b); });
  return all;
}

}  // namespace lockstep::see

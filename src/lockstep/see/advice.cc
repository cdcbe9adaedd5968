#include "lockstep/see/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::see {

namespace {

constexpr double kNormalWaiting = 0.1, kNormalData = 0.05, kNormalIdle = 0.15, kNormalStarved = 0.1;

double gain(double part) { return part / std::max(0.05, 1 - part); }  // when that part of the time goes

int64_t number_of(const RecipeKeys& keys, const char* key, int64_t otherwise) {
  return base::parse_number(value_of(keys, key)).value_or(otherwise);
}

double part_of(const StepTime& time, const char* kind) {
  for (const auto& [name, part] : time.kinds) {
    if (name == kind) return part;
  }
  return 0;
}

using Rule = std::optional<Advice> (*)(const StepTime&, const RecipeKeys&);

std::optional<Advice> slow_rank(const StepTime& time, const RecipeKeys&) {
  const RankTime* slow = slowest_rank(time);
  if (slow == nullptr) return std::nullopt;
  double others = 0;
  for (const RankTime& rank : time.ranks) others += &rank == slow ? 0 : rank.computation;
  others /= static_cast<double>(time.ranks.size() - 1);
  return Advice{
      fmt::format("look at the machine of rank {}", slow->rank),
      fmt::format("it computes {} per step and the others {}: they wait for it; `lockstep doctor` there "
                  "names a hot, throttled or shared device",
                  base::human_duration(slow->computation), base::human_duration(others)),
      gain(std::min(0.9, (slow->computation - others) / time.seconds))};
}

std::optional<Advice> busy_host(const StepTime& time, const RecipeKeys&) {
  if (time.starved < kNormalStarved) return std::nullopt;
  return Advice{
      "leave the processors to this run",
      fmt::format("its ranks want a processor and wait for one {:.0f} % of the time: other programs "
                  "have them, or ranks have more threads (run.threads) than there are",
                  100 * time.starved),
      gain(time.starved * (time.computation + time.data))};
}

std::optional<Advice> slow_data(const StepTime& time, const RecipeKeys& keys) {
  if (time.data < kNormalData) return std::nullopt;
  const int64_t workers = std::max<int64_t>(1, number_of(keys, "data.workers", 1));
  return Advice{fmt::format("data.workers={}", 2 * workers),
                "batches are not ready in time; token files (`lockstep tokenize`) need no work at all",
                gain(time.data)};
}

std::optional<Advice> recomputation(const StepTime& time, const RecipeKeys& keys) {
  const double part = part_of(time, "recompute");
  if (part < 0.03) return std::nullopt;
  const bool full = value_of(keys, "memory.recompute") == "full";
  return Advice{
      full ? "memory.recompute=cheap" : "memory.recompute=none",
      "activations are computed twice to save memory; `lockstep explain memory` says whether they fit",
      gain(full ? part / 2 : part)};
}

std::optional<Advice> fewer_collectives(const StepTime& time, const RecipeKeys& keys) {
  const int64_t zero = number_of(keys, "parallel.zero", 0);
  if (time.communication < kNormalWaiting || slowest_rank(time) != nullptr || zero < 2) return std::nullopt;
  return Advice{
      "parallel.zero=1",
      fmt::format("ZeRO {} moves weights or gradients in every round; with 1 they stay, and need memory "
                  "(`lockstep explain memory`)",
                  zero),
      gain(time.communication / 2)};
}

std::optional<Advice> larger_batch(const StepTime& time, const RecipeKeys& keys) {
  if (time.communication < kNormalWaiting || slowest_rank(time) != nullptr) return std::nullopt;
  const int64_t batch = number_of(keys, "batch.global", 0);
  return Advice{batch > 0 ? fmt::format("batch.global={}", 2 * batch) : "a larger batch.global",
                "gradients are reduced once per step, whatever the batch; this changes what is trained",
                gain(time.communication / 2)};
}

std::optional<Advice> fewer_slices(const StepTime& time, const RecipeKeys& keys) {
  const int64_t slices = number_of(keys, "batch.slices", 1);
  if (time.idle < kNormalIdle || slices < 2) return std::nullopt;
  return Advice{
      fmt::format("batch.slices={}", slices / 2),
      "nothing runs for part of the time: instructions are short, and larger slices make them longer; "
      "this needs more memory and changes the bits",
      gain(time.idle / 2)};
}

constexpr Rule kRules[] = {slow_rank,         busy_host,    slow_data,   recomputation,
                           fewer_collectives, larger_batch, fewer_slices};

}  // namespace

std::vector<Advice> advice_for(const StepTime& time, const RecipeKeys& keys) {
  constexpr size_t kMost = 3;
  std::vector<Advice> all;
  if (time.seconds <= 0) return all;
  for (const Rule rule : kRules) {
    if (auto advice = rule(time, keys)) all.push_back(std::move(*advice));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Advice& a, const Advice& b) { return a.faster > b.faster; });
  if (all.size() > kMost) all.resize(kMost);
  return all;
}

std::string limit_of(const StepTime& time) {
  if (slowest_rank(time) != nullptr)
    return fmt::format("one rank limits it: the others wait for rank {}", slowest_rank(time)->rank);
  const double worst = std::max({time.communication, time.data, time.idle});
  if (time.starved >= kNormalStarved && time.starved * time.computation >= worst)
    return "a busy host limits it: ranks wait for processors that other programs have";
  if (time.communication >= kNormalWaiting && worst == time.communication)
    return "communication limits it: nothing is computed meanwhile";
  if (time.data >= kNormalData && worst == time.data) return "data limits it: steps wait for their batches";
  if (time.idle >= kNormalIdle && worst == time.idle)
    return "overhead limits it: for part of the time nothing runs, because instructions are short or the "
           "host is "
           "busy";
  return "computation limits it, which is as it should be";
}

}  // namespace lockstep::see

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

// Where ranks often lack a processor, what they wait for in collectives is one another's processors, too.
bool starves(const StepTime& time) { return time.starved >= 3 * kNormalStarved; }

std::optional<Advice> busy_host(const StepTime& time, const RecipeKeys&) {
  if (time.starved < kNormalStarved) return std::nullopt;
  return Advice{
      "leave the processors to this run",
      fmt::format("its ranks want a processor and wait for one {:.0f} % of the time: other programs "
                  "have them, or ranks have more threads (run.threads) than there are",
                  100 * time.starved),
      gain(time.starved * (time.computation + time.data + (starves(time) ? time.communication : 0)))};
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

// How the recipe distributes the model, and over how many data ranks.
struct Cuts {
  int64_t tensor = 1, context = 1, pipeline = 1, data = 1;
};
Cuts cuts_of(const StepTime& time, const RecipeKeys& keys) {
  Cuts cuts{.tensor = number_of(keys, "parallel.tensor", 1),
            .context = number_of(keys, "parallel.context", 1),
            .pipeline = number_of(keys, "parallel.pipeline", 1)};
  const auto ranks = static_cast<int64_t>(time.ranks.size());
  const int64_t others =
      std::max<int64_t>(1, ranks / std::max<int64_t>(1, cuts.tensor * cuts.context * cuts.pipeline));
  cuts.data = number_of(keys, "parallel.data", others);  // "auto": those that are left
  return cuts;
}
bool waits_for_others(const StepTime& time) {
  return time.communication >= kNormalWaiting && slowest_rank(time) == nullptr;
}

// Only data ranks reduce gradients. Tensor and context ranks exchange activations, the more the larger the
// batch.
std::optional<Advice> larger_batch(const StepTime& time, const RecipeKeys& keys) {
  const Cuts cuts = cuts_of(time, keys);
  const bool cut = cuts.tensor * cuts.context * cuts.pipeline > 1;
  if (!waits_for_others(time) || (cut && cuts.data == 1)) return std::nullopt;
  const int64_t batch = number_of(keys, "batch.global", 0);
  return Advice{batch > 0 ? fmt::format("batch.global={}", 2 * batch) : "a larger batch.global",
                "gradients are reduced once per step, whatever the batch; this changes what is trained",
                gain(time.communication / (cut ? 4 : 2))};
}

std::optional<Advice> fewer_cuts(const StepTime& time, const RecipeKeys& keys) {
  const Cuts cuts = cuts_of(time, keys);
  const bool tensor = cuts.tensor >= cuts.context;
  const int64_t most = std::max(cuts.tensor, cuts.context);
  if (!waits_for_others(time) || most == 1) return std::nullopt;
  return Advice{
      fmt::format("parallel.{}={}", tensor ? "tensor" : "context", std::max<int64_t>(1, most / 2)),
      fmt::format("{} ranks exchange activations in every layer; data ranks in their place only reduce "
                  "gradients, and each needs more memory (`lockstep explain memory`)",
                  tensor ? "tensor" : "context"),
      gain(time.communication / 2)};
}

// The first and the last slices of a step leave stages idle: (p - 1) of (m + p - 1) turns.
std::optional<Advice> more_slices(const StepTime& time, const RecipeKeys& keys) {
  const auto p = static_cast<double>(cuts_of(time, keys).pipeline);
  const int64_t slices = number_of(keys, "batch.slices", 1), batch = number_of(keys, "batch.global", 0);
  if (!waits_for_others(time) || p < 2 || (batch > 0 && batch % (2 * slices) != 0)) return std::nullopt;
  const auto m = static_cast<double>(slices);
  const double bubble = (p - 1) / (m + p - 1), after = (p - 1) / (2 * m + p - 1);
  return Advice{
      fmt::format("batch.slices={}", 2 * slices),
      "stages wait for the first slices of a step and for the last; more of them are smaller, which "
      "changes the bits",
      gain(std::min(time.communication, bubble - after))};
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

constexpr Rule kRules[] = {slow_rank,    busy_host,  slow_data,   recomputation, fewer_collectives,
                           larger_batch, fewer_cuts, more_slices, fewer_slices};

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
  if (starves(time) || (time.starved >= kNormalStarved && time.starved * time.computation >= worst))
    return "a busy host limits it: ranks wait for processors that others have";
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

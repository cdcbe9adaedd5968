#include "lockstep/replay/seen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/hash.h"
#include "lockstep/checkpoint/formats/widen.h"

namespace lockstep::replay {

double Numbers::rms() const {
  return count > nonfinite ? std::sqrt(squares / static_cast<double>(count - nonfinite)) : 0;
}
double Numbers::norm() const { return std::sqrt(squares); }

void Numbers::add(const Numbers& other) {
  count += other.count, nonfinite += other.nonfinite, squares += other.squares;
  largest = std::max(largest, other.largest);
  hash = base::hash_combine(hash, other.hash);
}

Numbers numbers_of(const void* values, device::DType type, int64_t count) {
  Numbers numbers;
  numbers.count = count;
  const auto bytes = static_cast<size_t>(count * device::size_of(type));
  numbers.hash = base::hash_bytes({static_cast<const std::byte*>(values), bytes});
  if (!checkpoint::can_widen(type)) return numbers;
  constexpr int64_t kAtOnce = 4096;
  float wide[kAtOnce];
  for (int64_t at = 0; at < count; at += kAtOnce) {
    const int64_t some = std::min(kAtOnce, count - at);
    checkpoint::widen(static_cast<const char*>(values) + at * device::size_of(type), type, some, wide);
    for (int64_t i = 0; i < some; ++i) {
      const double value = wide[i];
      if (!std::isfinite(value)) {
        ++numbers.nonfinite;
        continue;
      }
      numbers.squares += value * value;
      numbers.largest = std::max(numbers.largest, std::abs(value));
    }
  }
  return numbers;
}

std::string SeenValue::place() const {
  return fmt::format("{}, slice {}, {} ({}): {}", pass, slice, block, segment, value);
}

bool SeenValue::same_place(const SeenValue& other) const {
  return pass == other.pass && slice == other.slice && block == other.block && segment == other.segment &&
         value == other.value;
}

std::vector<const SeenValue*> first_nonfinite(const SeenStep& step) {
  std::vector<const SeenValue*> found;
  std::set<int> slices;
  for (const SeenValue& value : step.values) {
    if (value.numbers.nonfinite > 0 && slices.insert(value.slice).second) found.push_back(&value);
  }
  return found;
}

namespace {

std::string numbers_apart(const Numbers& one, const Numbers& other) {
  return fmt::format("rms {:.6g} and {:.6g}, largest {:.6g} and {:.6g}", one.rms(), other.rms(), one.largest,
                     other.largest);
}

// In the order of computation: weights, batch, values, gradients, updates.
std::string first_difference(const SeenStep& one, const SeenStep& other) {
  const size_t blocks = std::min(one.blocks.size(), other.blocks.size());
  for (size_t b = 0; b < blocks; ++b) {
    const SeenBlock &mine = one.blocks[b], &theirs = other.blocks[b];
    if (mine.name != theirs.name || mine.before.count != theirs.before.count)
      return fmt::format("the models differ: {} with {} values, {} with {}", mine.name, mine.before.count,
                         theirs.name, theirs.before.count);
    if (mine.before.hash != theirs.before.hash)
      return fmt::format("the weights of {} before the step: {}", mine.name,
                         numbers_apart(mine.before, theirs.before));
  }
  if (one.batch_hash != other.batch_hash) return "the batch: other samples, though the weights are the same";
  for (size_t i = 0; i < std::min(one.values.size(), other.values.size()); ++i) {
    const SeenValue &mine = one.values[i], &theirs = other.values[i];
    if (!mine.same_place(theirs))
      return fmt::format("what is computed: {} in one, {} in the other", mine.place(), theirs.place());
    if (mine.numbers.hash != theirs.numbers.hash)
      return fmt::format("{}: {}", mine.place(), numbers_apart(mine.numbers, theirs.numbers));
  }
  for (size_t b = 0; b < blocks; ++b) {
    if (one.blocks[b].gradient.hash != other.blocks[b].gradient.hash)
      return fmt::format("the gradient of {}: {}", one.blocks[b].name,
                         numbers_apart(one.blocks[b].gradient, other.blocks[b].gradient));
  }
  for (size_t b = 0; b < blocks; ++b) {
    if (one.blocks[b].after.hash != other.blocks[b].after.hash)
      return fmt::format("the update of {}: {}", one.blocks[b].name,
                         numbers_apart(one.blocks[b].after, other.blocks[b].after));
  }
  return "";
}

}  // namespace

Difference difference_of(const SeenStep& one, const SeenStep& other) {
  Difference difference;
  difference.first = first_difference(one, other);
  std::set<std::string> differ;
  for (size_t b = 0; b < std::min(one.blocks.size(), other.blocks.size()); ++b) {
    const SeenBlock &mine = one.blocks[b], &theirs = other.blocks[b];
    if (mine.before.hash != theirs.before.hash || mine.gradient.hash != theirs.gradient.hash ||
        mine.after.hash != theirs.after.hash || mine.out.hash != theirs.out.hash)
      difference.blocks.push_back(mine.name);
  }
  difference.same = difference.first.empty() && difference.blocks.empty();
  return difference;
}

}  // namespace lockstep::replay

#include "lockstep/comm/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/comm/engine.h"

namespace lockstep::comm {
namespace {

constexpr Duration kVerdictGrace{10000};
constexpr size_t kLongestShown = 200, kMostNamed = 8;

std::string shown(const std::string& value) {
  return value.size() <= kLongestShown ? value : value.substr(0, kLongestShown) + "...";
}

void put(std::string* out, const std::string& text) { *out += fmt::format("{}:{}", text.size(), text); }

bool take(std::string_view* in, std::string* text) {
  size_t size = 0;
  const auto [end, error] = std::from_chars(in->data(), in->data() + in->size(), size);
  if (error != std::errc() || end == in->data() + in->size() || *end != ':') return false;
  in->remove_prefix(static_cast<size_t>(end - in->data()) + 1);
  if (size > in->size()) return false;
  *text = in->substr(0, size);
  in->remove_prefix(size);
  return true;
}

std::string seconds(Duration time) { return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000); }

std::vector<int> names_of(const RollCall& call) {
  if (!call.names.empty()) return call.names;
  std::vector<int> names(static_cast<size_t>(call.size));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

std::string missing_sentence(const std::vector<int>& missing, int size, Duration timeout) {
  const std::vector<int> named(missing.begin(),
                               missing.begin() + static_cast<long>(std::min(missing.size(), kMostNamed)));
  return fmt::format("{} of {} ranks did not come within {}: rank{} {}{}; see their logs, or allow more time",
                     missing.size(), size, seconds(timeout), missing.size() == 1 ? "" : "s",
                     fmt::join(named, ", "), missing.size() > kMostNamed ? ", ..." : "");
}

// Rank 0's part: "" or the sentence, with its error number before it.
std::string judge(const RollCall& call, const std::string& prefix, const Facts& own, Store& store) {
  const std::vector<int> names = names_of(call);
  std::vector<Facts> all{own};
  std::vector<int> missing;
  const auto end = std::chrono::steady_clock::now() + call.timeout;
  for (int rank = 1; rank < call.size; ++rank) {
    const auto left = std::chrono::duration_cast<Duration>(end - std::chrono::steady_clock::now());
    try {
      const std::string key = prefix + std::to_string(rank);
      all.push_back(unpack(store.get(key, std::max(left, Duration::zero()))));
      store.remove(key);
    } catch (const base::CommError& error) {
      if (error.number() != 510) throw;
      missing.push_back(names[static_cast<size_t>(rank)]);
    }
  }
  if (!missing.empty()) return "521 " + missing_sentence(missing, call.size, call.timeout);
  const std::string difference = first_difference(all, names);
  return difference.empty()
             ? ""
             : "523 " + difference + "; start every rank with the same program, recipe and machine";
}

const std::string* find(const Facts& facts, const std::string& what) {
  for (const auto& [name, value] : facts) {
    if (name == what) return &value;
  }
  return nullptr;
}

}  // namespace

std::string pack(const Facts& facts) {
  std::string bytes;
  for (const auto& [what, value] : facts) {
    put(&bytes, what);
    put(&bytes, value);
  }
  return bytes;
}

Facts unpack(const std::string& bytes) {
  Facts facts;
  std::string_view rest = bytes;
  std::string what, value;
  while (!rest.empty()) {
    if (!take(&rest, &what) || !take(&rest, &value)) return {};
    facts.emplace_back(what, value);
  }
  return facts;
}

std::string first_difference(const std::vector<Facts>& all, const std::vector<int>& names) {
  const Facts& first = all[0];
  for (const auto& [what, value] : first) {
    for (size_t q = 1; q < all.size(); ++q) {
      const std::string* other = find(all[q], what);
      if (other == nullptr) {
        return fmt::format("rank {} says nothing of {}, rank {} has {}", names[q], what, names[0],
                           shown(value));
      }
      if (*other != value) {
        return fmt::format("rank {} has {} = {}, rank {} has {}", names[q], what, shown(*other), names[0],
                           shown(value));
      }
    }
  }
  for (size_t q = 1; q < all.size(); ++q) {
    for (const auto& [what, value] : all[q]) {
      if (find(first, what) != nullptr) continue;
      return fmt::format("rank {} has {} = {}, rank {} says nothing of it", names[q], what, shown(value),
                         names[0]);
    }
  }
  return "";
}

void hold_roll_call(const RollCall& call, const Facts& facts, Store& store, const std::string& what) {
  const std::string prefix = fmt::format("roll-call/{}/", call.number);
  std::string verdict;
  if (call.rank == 0) {
    verdict = judge(call, prefix, facts, store);
    store.set(prefix + "verdict", verdict);
    // Whoever came to this call has read the verdict of the one before.
    if (verdict.empty()) store.remove(fmt::format("roll-call/{}/verdict", call.number - 1));
  } else {
    store.set(prefix + std::to_string(call.rank), pack(facts));
    try {
      // Rank 0 may have begun to wait later than we.
      verdict = store.get(prefix + "verdict", call.timeout + std::min(call.timeout, kVerdictGrace));
    } catch (const base::CommError& error) {
      if (error.number() != 510) throw;
      verdict = "521 " + missing_sentence({names_of(call)[0]}, call.size, call.timeout);
    }
  }
  if (verdict.empty()) return;
  const std::string sentence = what + verdict.substr(std::min<size_t>(4, verdict.size()));
  if (verdict.starts_with("523 ")) throw base::ConfigError(523, sentence);
  throw base::CommError(521, sentence);
}

void meet_in_store(const GroupOptions& options, Store& store) {
  const auto self = std::find(options.ranks.begin(), options.ranks.end(), options.self);
  LS_ASSERT(self != options.ranks.end());
  const std::unique_ptr<Store> own = with_prefix(store.clone(), "group/" + options.name + "/");
  const RollCall call{static_cast<int>(self - options.ranks.begin()), static_cast<int>(options.ranks.size()),
                      0, options.timeout, options.ranks};
  const Facts facts{{"members", fmt::format("{}", fmt::join(options.ranks, ","))}};
  const std::string what = fmt::format("group {} cannot be made: ", options.name);
  hold_roll_call(call, facts, *own, what);
}

}  // namespace lockstep::comm

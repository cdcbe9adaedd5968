#include "lockstep/comm/consistency_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/comm/engine.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Duration kVerdictGrace{10000};
constexpr Duration kTellAfter{5000}, kTellAgain{30000};  // who is waited for
constexpr size_t kLongestShown = 200, kMostNamed = 8;

std::string shown(const std::string& value) {
  return value.size() <= kLongestShown ? value : value.substr(0, kLongestShown) + "...";
}

void put(std::string* out, const std::string& text) { *out += fmt::format("{}:{}", text.size(), text); }

bool take(std::string_view* in, std::string* text) {
  const std::optional<size_t> size = base::take_number<size_t>(*in);
  if (!size || !in->starts_with(':')) return false;
  in->remove_prefix(1);
  if (*size > in->size()) return false;
  *text = in->substr(0, *size);
  in->remove_prefix(*size);
  return true;
}

std::string seconds(Duration time) { return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000); }

std::vector<int> names_of(const ConsistencyCheck& call) {
  if (!call.names.empty()) return call.names;
  std::vector<int> names(static_cast<size_t>(call.size));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

// "ranks 1, 3"
std::string named(const std::vector<int>& ranks) {
  const std::vector<int> few(ranks.begin(),
                             ranks.begin() + static_cast<long>(std::min(ranks.size(), kMostNamed)));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(few, ", "),
                     ranks.size() > kMostNamed ? ", ..." : "");
}

std::string missing_sentence(const std::vector<int>& missing, int size, Duration timeout) {
  return fmt::format("{} of {} ranks did not join within {}: {}; see their logs, or allow more time",
                     missing.size(), size, seconds(timeout), named(missing));
}

// How a rank shows itself: {"rank", ...}, {"who", ...}, and then its facts.
std::string arrival_of(const ConsistencyCheck& call, const Facts& facts) {
  Facts words{{"rank", std::to_string(call.rank)},
              {"who", fmt::format("process {} on {}", ::getpid(), base::host_name())}};
  words.insert(words.end(), facts.begin(), facts.end());
  return pack(words);
}

struct Arrival {
  int rank = -1;  // -1: not one of this check
  std::string who;
  Facts facts;
};

Arrival arrival_from(const std::string& bytes, int size) {
  Facts words = unpack(bytes);
  Arrival arrival;
  if (words.size() < 2) return arrival;
  const int rank = base::parse_number<int>(words[0].second).value_or(-1);
  if (rank < 0 || rank >= size) return arrival;
  arrival.rank = rank, arrival.who = words[1].second;
  arrival.facts.assign(words.begin() + 2, words.end());
  return arrival;
}

// What is wrong with a check, and how the judge tells the others: by its error's number and a sentence.
struct Finding {
  enum class Kind { absent = 521, differ = 523, twice = 528 };
  Kind kind = Kind::absent;
  std::string sentence;

  std::string to_text() const { return fmt::format("{} {}", static_cast<int>(kind), sentence); }
  static Finding from_text(const std::string& text) {
    const Finding finding{.sentence = text.substr(std::min<size_t>(4, text.size()))};
    for (const Kind kind : {Kind::differ, Kind::twice}) {
      if (text.starts_with(std::to_string(static_cast<int>(kind)))) return {kind, finding.sentence};
    }
    return finding;
  }
  [[noreturn]] void raise(const std::string& what) const {
    switch (kind) {
      case Kind::differ:
        throw base::ConfigError(523, what + sentence);
      case Kind::twice:
        throw base::ConfigError(528, what + sentence);
      case Kind::absent:
        break;
    }
    throw base::CommError(521, what + sentence);
  }
};

// The judge's part: waits for everyone, in the order in which they come.
class Judge {
 public:
  Judge(const ConsistencyCheck& call, const std::string& own) : call_(call), names_(names_of(call)) {
    came_.resize(static_cast<size_t>(call.size));
    note(own);
  }

  // Nothing: all is well.
  std::optional<Finding> verdict(const std::string& queue, Store& store) {
    const Clock::time_point begin = Clock::now(), end = begin + call_.timeout;
    Clock::time_point tell_at = begin + kTellAfter;
    while (twice_.empty() && !missing().empty()) {
      const auto left = std::chrono::duration_cast<Duration>(std::min(end, tell_at) - Clock::now());
      if (const auto bytes = store.pop(queue, std::max(left, Duration::zero()))) {
        note(*bytes);
      } else if (Clock::now() >= end) {
        return Finding{Finding::Kind::absent, missing_sentence(missing(), call_.size, call_.timeout)};
      } else if (Clock::now() >= tell_at) {
        tell_at = Clock::now() + kTellAgain;
        if (call_.say)
          call_.say(
              fmt::format("waiting for {} of {} ranks: {}", missing().size(), call_.size, named(missing())));
      }
    }
    if (!twice_.empty()) return Finding{Finding::Kind::twice, twice_};
    std::vector<Facts> all;
    for (const Arrival& one : came_) all.push_back(one.facts);
    const std::string difference = first_difference(all, names_);
    if (difference.empty()) return std::nullopt;
    return Finding{
        Finding::Kind::differ,
        difference + "; start every rank with the same program and recipe on the same kind of machine"};
  }

 private:
  void note(const std::string& bytes) {
    Arrival arrival = arrival_from(bytes, call_.size);
    if (arrival.rank < 0) return;
    Arrival& place = came_[static_cast<size_t>(arrival.rank)];
    if (place.rank >= 0) {
      twice_ = fmt::format("two processes claim to be rank {}: {} and {}; give each its own RANK",
                           names_[static_cast<size_t>(arrival.rank)], place.who, arrival.who);
    }
    place = std::move(arrival);
  }

  std::vector<int> missing() const {
    std::vector<int> absent;
    for (size_t q = 0; q < came_.size(); ++q) {
      if (came_[q].rank < 0) absent.push_back(names_[q]);
    }
    return absent;
  }

  const ConsistencyCheck& call_;
  std::vector<int> names_;
  std::vector<Arrival> came_;
  std::string twice_;
};

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
        return fmt::format("rank {} does not have {}, rank {} has {}", names[q], what, names[0],
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
      return fmt::format("rank {} has {} = {}, rank {} does not have it", names[q], what, shown(value),
                         names[0]);
    }
  }
  return "";
}

void check_consistency(const ConsistencyCheck& call, const Facts& facts, Store& store,
                       const std::string& what) {
  const std::string prefix = fmt::format("consistency/{}/", call.number);
  const std::string own = arrival_of(call, facts);
  // A second rank 0 must not judge as well: it comes like the others, and is noticed.
  const bool judges = call.rank == 0 && store.add(prefix + "judge", 1) == 1;
  std::optional<Finding> finding;
  if (judges) {
    finding = Judge(call, own).verdict(prefix + "arrivals", store);
    store.set(prefix + "verdict", finding ? finding->to_text() : "");
    store.remove(prefix + "judge");
    // Whoever came to this call has read the verdict of the one before.
    if (!finding) store.remove(fmt::format("consistency/{}/verdict", call.number - 1));
  } else {
    store.push(prefix + "arrivals", own);
    try {
      // Rank 0 may have begun to wait later than we.
      const std::string verdict =
          store.get(prefix + "verdict", call.timeout + std::min(call.timeout, kVerdictGrace));
      if (!verdict.empty()) finding = Finding::from_text(verdict);
    } catch (const StoreTimeoutError&) {
      finding = {Finding::Kind::absent, missing_sentence({names_of(call)[0]}, call.size, call.timeout)};
    }
  }
  if (finding) finding->raise(what);
}

void check_members(const GroupOptions& options, Store& store) {
  const auto self = std::find(options.ranks.begin(), options.ranks.end(), options.self);
  LS_ASSERT(self != options.ranks.end());
  const std::unique_ptr<Store> own = with_prefix(store.clone(), "group/" + options.name + "/");
  const ConsistencyCheck call{static_cast<int>(self - options.ranks.begin()),
                              static_cast<int>(options.ranks.size()),
                              0,
                              options.timeout,
                              options.ranks,
                              {}};
  const Facts facts{{"members", fmt::format("{}", fmt::join(options.ranks, ","))}};
  const std::string what = fmt::format("cannot create group {}: ", options.name);
  check_consistency(call, facts, *own, what);
}

}  // namespace lockstep::comm

#include "lockstep/plan/catalogue/place.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"

namespace lockstep::plan {

using base::ConfigError;

namespace {

constexpr int64_t kMostRanks = 1 << 20;

struct Counted {
  int64_t count = 1;
  std::string name;
};

// A count that no machine reaches is still a count, to be refused as one.
std::optional<int64_t> count_of(const std::string& word) {
  const bool digits = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  if (const auto count = base::parse_number<int64_t>(word)) return std::min(*count, kMostRanks + 1);
  return digits ? std::optional(kMostRanks + 1) : std::nullopt;
}

// "8xH100", "32 x NAME", "NAME x 32", "NAME". A name may have an x of its own: p5.48xlarge.
std::vector<Counted> readings(const std::string& words) {
  std::vector<Counted> all{{1, words}};
  for (size_t x = words.find('x'); x != std::string::npos; x = words.find('x', x + 1)) {
    const std::string before(base::trimmed(words.substr(0, x))), after(base::trimmed(words.substr(x + 1)));
    if (const auto count = count_of(before)) all.push_back({*count, after});
    if (const auto count = count_of(after)) all.push_back({*count, before});
  }
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const DeviceRow& row : catalogue().devices) all.push_back(row.name);
  for (const MachineRow& row : catalogue().machines) all.push_back(row.name);
  return all;
}

// A name that begins as the word does, for the most part: n1-standard-8-1xT4 for n1-standard-4. Otherwise one
// that is a few letters away.
std::string nearest_name(const std::string& word) {
  std::string near;
  size_t most = word.size() - word.size() / 4;
  for (const std::string& name : names()) {
    const size_t common = static_cast<size_t>(std::ranges::mismatch(word, name).in1 - word.begin());
    if (common >= most && common > 1) most = common + 1, near = name;
  }
  return near.empty() ? base::nearest_word(word, names()) : near;
}

[[noreturn]] void refuse(const std::string& words, const std::vector<Counted>& read) {
  const bool this_one =
      std::any_of(read.begin(), read.end(), [](const Counted& c) { return c.name == "this"; });
  if (this_one) {
    throw ConfigError(571,
                      fmt::format("{}: nobody has measured this machine yet; run `lockstep bench machine` "
                                  "once, which takes some seconds",
                                  base::quoted(words)));
  }
  std::string near;
  for (auto one = read.rbegin(); one != read.rend() && near.empty(); ++one) near = nearest_name(one->name);
  throw ConfigError(
      571, fmt::format("{} is no machine of the catalogue{}; `lockstep prices` lists them: write 8xH100 or "
                       "\"a3-highgpu-8g x 32\"",
                       base::quoted(words), near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
}

}  // namespace

std::optional<Place::Price> Place::price(Tariff tariff, const std::string& region) const {
  if (row == nullptr) return std::nullopt;
  const RegionPrice* found = region.empty() ? row->cheapest(tariff) : row->price_in(region);
  if (found == nullptr || found->of(tariff) <= 0) return std::nullopt;
  return Price{found->of(tariff) * nodes, found->region};
}

Place with_ranks(const Place& place, int ranks) {
  Place other = place;
  other.ranks = ranks;
  other.nodes = static_cast<int>(base::divide_up(ranks, place.model.ranks_per_node));
  if (place.row != nullptr) {
    other.ranks = other.nodes * place.row->devices;
    other.words = other.nodes == 1 ? place.row->name : fmt::format("{} x {}", other.nodes, place.row->name);
  } else {
    other.words = fmt::format("{} x {}", ranks, place.device->name);
  }
  return other;
}

Place parse_place(const std::string& words) {
  const std::string given(base::trimmed(words));
  const std::vector<Counted> read = readings(given);
  const Catalogue& all = catalogue();
  for (const Counted& one : read) {
    const MachineRow* machine = all.find_machine(one.name);
    const DeviceRow* device =
        machine != nullptr ? all.find_device(machine->device) : all.find_device(one.name);
    if (device == nullptr) continue;
    if (device->is_of_another_build()) {
      throw ConfigError(
          576,
          fmt::format("the profile of {} was measured by Lockstep {}, and this is {}, whose kernels may be "
                      "faster or slower: measure that machine again with `lockstep bench machine`",
                      base::quoted(device->name), device->build, base::kVersion));
    }
    const int64_t ranks = one.count * (machine != nullptr ? machine->devices : 1);
    if (one.count < 1 || ranks > kMostRanks) {
      throw ConfigError(571, fmt::format("{}: expected 1 to {} devices", base::quoted(given), kMostRanks));
    }
    Place place{.words = given, .device = device, .row = machine};
    place.model = machine != nullptr ? all.model_of(*machine) : device->model;
    return with_ranks(place, static_cast<int>(ranks));
  }
  refuse(given, read);
}

}  // namespace lockstep::plan

#include "lockstep/jobs/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"

namespace lockstep::jobs {
namespace {

using base::ConfigError;

Words split_commas(const std::string& text) {
  Words words;
  std::istringstream all(text);
  for (std::string word; std::getline(all, word, ',');) {
    const std::string_view bare = base::trimmed(word);
    if (!bare.empty()) words.emplace_back(bare);
  }
  return words;
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

int64_t integer_of(const std::string& text, const Setting& setting, const std::string& where) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < setting.at_least ||
      value > 1'000'000)
    throw ConfigError(721, fmt::format("{} is an integer from {} to 1000000, not {}; example: {}", where,
                                       setting.at_least, base::quoted(text), setting.example));
  return value;
}

struct Assign {
  Place& place;
  const Setting& setting;
  const std::string& text;
  const std::string& where;

  void operator()(std::string Place::*member) const {
    if (!setting.choices.empty() && std::ranges::find(setting.choices, text) == setting.choices.end())
      throw ConfigError(721, fmt::format("{} is one of {}, not {}", where,
                                         base::listed(setting.choices, "or"), base::quoted(text)));
    check_line(text, where);
    place.*member = text;
  }
  void operator()(int64_t Place::*member) const { place.*member = integer_of(text, setting, where); }
  void operator()(bool Place::*member) const {
    if (text != "true" && text != "false")
      throw ConfigError(721, fmt::format("{} is true or false, not {}", where, base::quoted(text)));
    place.*member = text == "true";
  }
  void operator()(Seconds Place::*member) const {
    const Seconds time = parse_duration(text);
    if (time.count == 0)
      throw ConfigError(
          721, fmt::format("{} is a time such as 90m, 24h or 1d12h, not {}", where, base::quoted(text)));
    place.*member = time;
  }
  void operator()(Words Place::*member) const {
    place.*member = split_commas(text);
    for (const std::string& word : place.*member) check_line(word, where);
  }
};

// What may be a secret's value by mistake is not repeated.
std::string shown_part(const Setting& setting, const std::string& value) {
  const bool private_value = setting.name == "secrets" || setting.name == "environment";
  return private_value ? setting.name + " " + value.substr(0, value.find('=')) : setting.name;
}

Words names_of_settings() {
  Words names;
  for (const Setting& setting : settings()) names.push_back(setting.name);
  return names;
}

}  // namespace

void check_line(const std::string& value, const std::string& where) {
  const bool control =
      std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!control && is_utf8(value)) return;
  throw ConfigError(
      721, fmt::format("{} has {}; remove it", where,
                       control ? "a control character, such as a line break," : "bytes that are no UTF-8"));
}

const Setting* find_setting(std::string_view name) {
  const auto found = std::ranges::find(settings(), name, &Setting::name);
  return found == settings().end() ? nullptr : &*found;
}

bool counts_for(const Setting& setting, const std::string& kind) {
  std::istringstream kinds(setting.kinds);
  for (std::string one; kinds >> one;) {
    if (one == kind) return true;
  }
  return setting.kinds.empty();
}

void set(Place& place, const std::string& key, const std::string& text, const std::string& where) {
  const Setting* setting = find_setting(key);
  if (!setting) {
    const std::string near = base::nearest_word(key, names_of_settings());
    throw ConfigError(720, fmt::format("{} is not a setting of a target; {}", where,
                                       near.empty() ? "`lockstep targets --keys` lists them"
                                                    : "did you mean " + near + "?"));
  }
  std::visit(Assign{place, *setting, text, where}, setting->member);
}

std::string text_of(const Setting& setting, const Place& place) {
  struct Show {
    const Place& place;
    std::string operator()(std::string Place::*member) const { return place.*member; }
    std::string operator()(int64_t Place::*member) const { return std::to_string(place.*member); }
    std::string operator()(bool Place::*member) const { return place.*member ? "true" : "false"; }
    std::string operator()(Seconds Place::*member) const { return duration_text(place.*member); }
    std::string operator()(Words Place::*member) const { return base::join(place.*member, ","); }
  };
  return std::visit(Show{place}, setting.member);
}

void check(const Place& place) {
  static const Place defaults;
  find_target(place.kind);
  for (const Setting& setting : settings()) {
    if (const auto* text = std::get_if<std::string Place::*>(&setting.member))
      check_line(place.**text, setting.name);
    if (const auto* list = std::get_if<Words Place::*>(&setting.member)) {
      for (const std::string& word : place.**list) check_line(word, shown_part(setting, word));
    }
    if (counts_for(setting, place.kind) || text_of(setting, place) == text_of(setting, defaults)) continue;
    throw ConfigError(722,
                      fmt::format("{} has no effect on {}, a target of kind {}; remove it (it is for {})",
                                  setting.name, base::quoted(place.name), place.kind, setting.kinds));
  }
}

std::vector<Place> components_of(const Place& place) {
  static const Words allowed = {"nodes",      "gpus",      "gpu_type", "ranks",     "cpus",
                                "memory_gib", "partition", "qos",      "constraint"};
  std::vector<Place> all = {place};
  all[0].components.clear();
  for (const std::string& words : place.components) {
    Place one = all[0];
    one.nodes = 1, one.fewest_nodes = 0, one.gpus = one.ranks = 0, one.gpu_type.clear(),
    one.constraint.clear();
    std::istringstream parts(words);
    for (std::string word; parts >> word;) {
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      if (equals == std::string::npos || std::ranges::find(allowed, key) == allowed.end())
        throw ConfigError(721, fmt::format("components: {} is not KEY=VALUE with one of {}; example: {}",
                                           base::quoted(word), base::join(allowed, ", "),
                                           find_setting("components")->example));
      set(one, key, word.substr(equals + 1), "components: " + key);
    }
    all.push_back(std::move(one));
  }
  return all;
}

Seconds parse_duration(const std::string& text) {
  int64_t total = 0;
  const char *at = text.data(), *const end = text.data() + text.size();
  while (at != end) {
    int64_t count = 0;
    const auto [next, error] = std::from_chars(at, end, count);
    if (error != std::errc{} || next == end || count < 0 || count > 10'000'000) return {};
    const int64_t unit = *next == 's'   ? 1
                         : *next == 'm' ? 60
                         : *next == 'h' ? 3600
                         : *next == 'd' ? 86400
                                        : 0;
    if (unit == 0) return {};
    total += count * unit;
    at = next + 1;
  }
  return {total};
}

std::string duration_text(Seconds time) {
  std::string text;
  int64_t left = time.count;
  for (const auto& [unit, letter] :
       {std::pair{86400, 'd'}, std::pair{3600, 'h'}, std::pair{60, 'm'}, std::pair{1, 's'}}) {
    if (left >= unit) text += fmt::format("{}{}", left / unit, letter);
    left %= unit;
  }
  return text;
}

Place find_place(const std::string& name, const std::vector<Place>& places) {
  Words known;
  for (const Place& place : places) {
    if (place.name == name) return place;
    known.push_back(place.name);
  }
  for (const Target& target : target_table()) {
    if (name == target.kind) {
      Place place;
      place.name = place.kind = name;
      return place;
    }
    known.push_back(target.kind);
  }
  const std::string near = base::nearest_word(name, known);
  throw ConfigError(
      723,
      fmt::format("{} is neither a table of {} nor a kind of target; {}", base::quoted(name), targets_file(),
                  near.empty() ? "known are " + base::join(known, ", ") : "did you mean " + near + "?"));
}

}  // namespace lockstep::jobs

// ~/.config/lockstep/targets.toml: a table per place, each key a row of settings().
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/place.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::jobs {
namespace {

using base::ConfigError;
constexpr int64_t kMostBytes = 1 << 20;

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 40 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// The value as a flag would give it.
struct ValueText {
  const std::string& where;
  std::string operator()(const std::string& text) const { return text; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return recipe::toml_number(value); }
  std::string operator()(const recipe::TomlOther& other) const { return refuse(other.what); }
  std::string operator()(const recipe::TomlTable&) const { return refuse("a table"); }
  std::string operator()(const recipe::TomlList& list) const {
    if (!list.of_text && !list.items.empty()) return refuse("a list of other things than texts");
    for (const std::string& item : list.items) {
      if (item.find(',') != std::string::npos)
        throw ConfigError(
            721, fmt::format("{} has a comma in {}; commas separate the items", where, base::quoted(item)));
    }
    return base::join(list.items, ",");
  }
  [[noreturn]] std::string refuse(const std::string& what) const {
    throw ConfigError(
        721, fmt::format("{} is {}; expected a text, a number, true, false or a list of texts", where, what));
  }
};

void add_value(Place& place, const recipe::TomlNode& node, const std::string& file) {
  const std::string key = node.name.substr(node.name.find('.') + 1);
  const std::string where = fmt::format("{}:{}: {}", file, node.line, key);
  const Setting* setting = find_setting(key);
  const bool list = std::holds_alternative<recipe::TomlList>(node.value);
  if (setting && list != std::holds_alternative<Words Place::*>(setting->member))
    throw ConfigError(721, fmt::format("{} is {}; example: {}", where,
                                       list ? "one value, not a list" : "a list", setting->example));
  set(place, key, std::visit(ValueText{where}, node.value), where);
}

}  // namespace

std::string targets_file() {
  const std::string home = base::environment("HOME").value_or("");
  return base::environment("XDG_CONFIG_HOME").value_or(home + "/.config") + "/lockstep/targets.toml";
}

std::vector<Place> read_targets(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  std::vector<recipe::TomlNode> nodes;
  try {
    nodes = recipe::parse_toml(base::read_file(file, kMostBytes));
  } catch (const recipe::TomlSyntaxError& wrong) {
    throw ConfigError(720, fmt::format("{}:{}:{}: {}", file, wrong.line, wrong.column, wrong.description));
  }
  std::vector<Place> places;
  for (const recipe::TomlNode& node : nodes) {
    const std::string table = node.name.substr(0, node.name.find('.'));
    if (node.depth == 1 && !std::holds_alternative<recipe::TomlTable>(node.value))
      throw ConfigError(720, fmt::format("{}:{}: {} is outside of a table; write [NAME] above it", file,
                                         node.line, node.name));
    if (!is_name(table))
      throw ConfigError(
          720, fmt::format("{}:{}: a target's name has up to 40 letters, digits, - and _, not {}", file,
                           node.line, base::quoted(table)));
    auto place = std::ranges::find(places, table, &Place::name);
    if (place == places.end()) {
      places.emplace_back().name = table;
      place = std::prev(places.end());
    }
    if (node.depth > 1) add_value(*place, node, file);
  }
  for (Place& place : places) {
    if (place.kind.empty())
      throw ConfigError(
          722, fmt::format("{}: [{}] has no kind; add kind = \"slurm\" or another of `lockstep targets`",
                           file, place.name));
    check(place);
  }
  return places;
}

}  // namespace lockstep::jobs

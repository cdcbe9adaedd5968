// The rows looked at one by one: finding a key, its value as text, what it may be.
#include "lockstep/recipe/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lockstep/base/text.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::recipe {
namespace {

constexpr size_t kFarOff = 1000;

// Half steps between a wrong name and a key: edits count two, another section at most one. A name of which no
// letter is left is another word, however short it is.
size_t distance_to(std::string_view section, std::string_view last, const Key& key) {
  const auto half_steps = [&](const std::string& name) {
    const size_t edits = base::edit_distance(last, name);
    return edits < std::max(last.size(), name.size()) ? 2 * edits : kFarOff;
  };
  size_t best = half_steps(key.last_part());
  for (const std::string& name : key.also) best = std::min(best, half_steps(name));
  return best + (section == key.section() ? 0 : 1);
}

std::string limit_text(double limit) {
  std::string text = toml_number(limit);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  const size_t zeros = text.size() - 1 - text.find_last_not_of('0');
  if (zeros >= 6) text = fmt::format("{}e{}", text.substr(0, text.size() - zeros), zeros);  // 1e12
  return text;
}

}  // namespace

const Key* find_key(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, const Key*>;
    for (const Key& key : recipe_keys()) map->emplace(key.name, &key);
    return map;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? nullptr : found->second;
}

std::string nearest_key(std::string_view name) {
  if (name.size() > 100) return "";
  const size_t point = name.find('.');
  const std::string_view section = point == std::string_view::npos ? "" : name.substr(0, point);
  const std::string_view last = point == std::string_view::npos ? name : name.substr(point + 1);
  std::string best;
  size_t best_distance = 2 * std::max<size_t>(1, last.size() / 3) + 2;  // beyond this it is another word
  for (const Key& key : recipe_keys()) {
    const size_t distance =
        std::min(distance_to(section, last, key), 2 * base::edit_distance(name, key.name));
    if (distance < best_distance) best = key.name, best_distance = distance;
  }
  return best;
}

std::string type_text(const Key& key) {
  switch (key.type) {
    case Key::Type::boolean:
      return "true or false";
    case Key::Type::integer:
      return "an integer";
    case Key::Type::number:
      return "a number";
    case Key::Type::text:
      return "a string";
    case Key::Type::auto_integer:
      return "an integer or \"auto\"";
  }
  return "";
}

std::string allowed_text(const Key& key) {
  if (!key.choices.empty()) return "one of " + base::join(key.choices, ", ");
  if (!key.form.empty()) return key.form;
  std::vector<std::string> parts;
  if (key.above) parts.push_back("above " + limit_text(*key.above));
  if (key.at_least) parts.push_back("at least " + limit_text(*key.at_least));
  if (key.at_most) parts.push_back("at most " + limit_text(*key.at_most));
  return base::join(parts, ", ");
}

std::string value_text(const Key& key, const Recipe& recipe) {
  struct Printer {
    std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
    std::string operator()(const int64_t* value) const { return fmt::format("{}", *value); }
    std::string operator()(const double* value) const { return toml_number(*value); }
    std::string operator()(const std::string* value) const { return toml_string(*value); }
    std::string operator()(const AutoInt* value) const {
      return value->is_auto ? "\"auto\"" : fmt::format("{}", value->value);
    }
  };
  // `member` gives a pointer into a mutable recipe; printing only reads.
  return std::visit(Printer{}, key.member(const_cast<Recipe&>(recipe)));
}

std::string default_text(const Key& key) {
  static const Recipe defaults;
  return value_text(key, defaults);
}

bool is_chosen(const Resolved& resolved, const Key& key) {
  const auto found = resolved.origin.find(key.name);
  if (found == resolved.origin.end()) return false;
  const std::string& origin = found->second;
  if (origin == kCommandLine) return true;
  const size_t line = origin.rfind(':') + 1;  // "first.toml:12"
  const bool in_file =
      line > 0 && line < origin.size() && origin.find_first_not_of("0123456789", line) == std::string::npos;
  return in_file && !origin.starts_with(kDefaultRecipe) &&
         value_text(key, resolved.recipe) != default_text(key);
}

std::vector<std::string> keys_without_effect(const Resolved& resolved, const Circumstances& run) {
  std::vector<std::string> sentences;
  for (const Key& key : recipe_keys()) {
    if (!key.counts.broken || !is_chosen(resolved, key)) continue;
    const std::string why = key.counts.broken(run);
    if (why.empty()) continue;
    sentences.push_back(fmt::format("{} = {} ({}) has no effect: {}", key.name,
                                    value_text(key, resolved.recipe), resolved.origin.at(key.name), why));
  }
  return sentences;
}

std::vector<std::string> differing_keys(const Recipe& a, const Recipe& b) {
  std::vector<std::string> names;
  for (const Key& key : recipe_keys()) {
    if (value_text(key, a) != value_text(key, b)) names.push_back(key.name);
  }
  return names;
}

}  // namespace lockstep::recipe

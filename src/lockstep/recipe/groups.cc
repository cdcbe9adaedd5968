#include "lockstep/recipe/groups.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::recipe {

namespace {

const std::vector<std::string> kWords = {"match", "lr_scale", "weight_decay", "frozen", "kind"};
constexpr double kMostRate = 1e6, kMostDecay = 10;

std::vector<std::string> split(std::string_view text, std::string_view at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(at), text.size());
    if (const std::string_view part = base::trimmed(text.substr(0, end)); !part.empty())
      parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

[[noreturn]] void refuse(const std::string& group, const std::string& why) {
  throw base::ConfigError(
      142, fmt::format("optim.groups: in \"{}\" {}; write a pattern of names and what is their own, as in "
                       "\"*.bias weight_decay=0\", with lr_scale, weight_decay, frozen or kind",
                       group, why));
}

double number(const std::string& group, const std::string& word, const std::string& text, double most) {
  const std::optional<double> value = base::parse_number<double>(text);
  if (!value || !std::isfinite(*value) || *value < 0 || *value > most)
    refuse(group, fmt::format("{}={} is not a number from 0 to {:g}", word, text, most));
  return *value;
}

void take(ParamGroup& group, const std::string& whole, const std::string& word, const std::string& value) {
  if (word == "match") {
    group.match = value;
  } else if (word == "lr_scale") {
    group.lr_scale = number(whole, word, value, kMostRate);
  } else if (word == "weight_decay") {
    group.weight_decay = number(whole, word, value, kMostDecay);
  } else if (word == "kind") {
    group.kind = value;
  } else if (word == "frozen") {
    if (value != "true" && value != "false")
      refuse(whole, fmt::format("frozen={} is neither true nor false", value));
    group.frozen = value == "true";
  } else {
    const std::string near = base::nearest_word(word, kWords);
    refuse(whole, fmt::format("\"{}\" is not known{}", word,
                              near.empty() ? "" : fmt::format(", did you mean {}?", near)));
  }
}

}  // namespace

std::vector<ParamGroup> read_groups(const std::string& text) {
  std::vector<ParamGroup> groups;
  for (const std::string& whole : split(text, ",;")) {
    ParamGroup group;
    for (const std::string& word : split(whole, " ")) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        if (word == "frozen") {
          group.frozen = true;
        } else if (group.match.empty()) {
          group.match = word;
        } else {
          refuse(whole, fmt::format("\"{}\" stands alone", word));
        }
        continue;
      }
      take(group, whole, word.substr(0, equals), word.substr(equals + 1));
    }
    if (group.match.empty()) refuse(whole, "there is no pattern");
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string write_groups(const std::vector<ParamGroup>& groups) {
  std::vector<std::string> texts;
  for (const ParamGroup& group : groups) {
    std::string text = group.match;
    if (group.lr_scale) text += fmt::format(" lr_scale={}", *group.lr_scale);
    if (group.weight_decay) text += fmt::format(" weight_decay={}", *group.weight_decay);
    if (group.frozen) text += fmt::format(" frozen={}", *group.frozen);
    if (!group.kind.empty()) text += " kind=" + group.kind;
    texts.push_back(std::move(text));
  }
  return base::join(texts, ",");
}

std::vector<std::string> read_patterns(const std::string& text) { return split(text, ", "); }

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace lockstep::recipe

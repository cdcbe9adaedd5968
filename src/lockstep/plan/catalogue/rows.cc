#include "lockstep/plan/catalogue/rows.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::plan {

using base::ConfigError;

void Row::add(const recipe::TomlNode& node, const std::string& key) {
  if (std::holds_alternative<recipe::TomlTable>(node.value)) return;
  values_[key] = {node.value, node.line};
  order_.push_back(key);
}

void Row::refuse(int line, const std::string& why) const {
  throw ConfigError(570,
                    fmt::format("{}:{}: [{}.{}]: {}", file_, line > 0 ? line : line_, kind_, name_, why));
}

Row::Value* Row::find(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  found->second.asked = true;
  return &found->second;
}

std::string Row::text(const std::string& key) {
  const Value* value = find(key);
  if (value == nullptr) refuse(line_, fmt::format("{} is missing", key));
  const auto* text = std::get_if<std::string>(&value->value);
  if (text == nullptr || text->empty()) refuse(value->line, fmt::format("{} must be a text in quotes", key));
  return *text;
}

std::string Row::text_or(const std::string& key, const std::string& otherwise) {
  return values_.contains(key) ? text(key) : otherwise;
}

double Row::number(const std::string& key, double least, double most) {
  const Value* value = find(key);
  if (value == nullptr) refuse(line_, fmt::format("{} is missing", key));
  double number = 0;
  if (const auto* whole = std::get_if<int64_t>(&value->value)) {
    number = static_cast<double>(*whole);
  } else if (const auto* real = std::get_if<double>(&value->value)) {
    number = *real;
  } else {
    refuse(value->line, fmt::format("{} must be a number", key));
  }
  if (!(number >= least && number <= most))
    refuse(value->line, fmt::format("{} = {} must be from {} to {}", key, number, least, most));
  return number;
}

double Row::number_or(const std::string& key, double otherwise, double least, double most) {
  return values_.contains(key) ? number(key, least, most) : otherwise;
}

bool Row::yes_or_no(const std::string& key) {
  const Value* value = find(key);
  if (value == nullptr) refuse(line_, fmt::format("{} is missing", key));
  const bool* yes = std::get_if<bool>(&value->value);
  if (yes == nullptr) refuse(value->line, fmt::format("{} must be true or false", key));
  return *yes;
}

std::vector<std::pair<std::string, double>> Row::numbers_under(const std::string& prefix) {
  std::vector<std::pair<std::string, double>> found;
  for (const std::string& key : order_) {
    if (key.starts_with(prefix + ".")) found.emplace_back(key.substr(prefix.size() + 1), number(key, 0, 1e6));
  }
  return found;
}

void Row::refuse_others() const {
  std::vector<std::string> asked;
  for (const auto& [key, value] : values_) {
    if (value.asked) asked.push_back(key);
  }
  for (const auto& [key, value] : values_) {
    if (value.asked) continue;
    const std::string near = base::nearest_word(key, asked);
    refuse(value.line,
           fmt::format("{} is not known here{}", key, near.empty() ? "" : "; did you mean " + near + "?"));
  }
}

std::vector<Row> read_rows(std::string_view text, const std::string& file) {
  std::vector<recipe::TomlNode> nodes;
  try {
    nodes = recipe::parse_toml(text);
  } catch (const recipe::TomlSyntaxError& error) {
    throw ConfigError(570, fmt::format("{}:{}: {}", file, error.line, error.description));
  }
  std::vector<Row> rows;
  std::string prefix;
  for (const recipe::TomlNode& node : nodes) {
    const bool table = std::holds_alternative<recipe::TomlTable>(node.value);
    if (node.depth == 1 && table) continue;
    if (node.depth < 2 || (node.depth == 2 && !table)) {
      throw ConfigError(570, fmt::format("{}:{}: {} stands outside of a row; rows are [device.NAME], "
                                         "[kernels.NAME] and [machine.NAME]",
                                         file, node.line, node.name));
    }
    if (node.depth == 2) {
      const size_t dot = node.name.find('.');
      std::string name = node.name.substr(dot + 1);
      if (name.size() > 1 && name.front() == '"') name = name.substr(1, name.size() - 2);
      rows.emplace_back(file, node.name.substr(0, dot), name, node.line);
      prefix = node.name + ".";
    } else if (!rows.empty() && node.name.starts_with(prefix)) {
      rows.back().add(node, node.name.substr(prefix.size()));
    }
  }
  return rows;
}

}  // namespace lockstep::plan

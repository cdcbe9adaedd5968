#include "lockstep/recipe/toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/text.h"

namespace lockstep::recipe {
namespace {

bool is_bare(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// A table of plain values as one text; empty where it holds anything else.
std::string text_of(const toml::table& table) {
  std::string text;
  for (const auto& [key, node] : table) {
    std::string value;
    if (const auto* b = node.as_boolean()) value = b->get() ? "true" : "false";
    if (const auto* i = node.as_integer()) value = std::to_string(i->get());
    if (const auto* d = node.as_floating_point()) value = toml_number(d->get());
    if (const auto* s = node.as_string()) value = s->get();
    if (value.empty()) return "";
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key.str(), value);
  }
  return text;
}

TomlValue list_of_tables(const toml::array& array) {
  TomlList list{.items = {}, .of_tables = true};
  for (const toml::node& item : array) {
    list.items.push_back(text_of(*item.as_table()));
    if (list.items.back().empty()) return TomlOther{"a list"};
  }
  return list;
}

TomlValue list_of(const toml::array& array) {
  if (!array.empty() && array.is_homogeneous<toml::table>()) return list_of_tables(array);
  const bool text = array.is_homogeneous<std::string>();
  if (!text && !array.is_homogeneous<int64_t>()) return TomlOther{"a list"};
  TomlList list{.items = {}, .of_text = text};
  for (const toml::node& item : array)
    list.items.push_back(text ? item.as_string()->get() : std::to_string(item.as_integer()->get()));
  return list;
}

TomlValue value_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return TomlTable{};
    case toml::node_type::boolean:
      return node.as_boolean()->get();
    case toml::node_type::integer:
      return node.as_integer()->get();
    case toml::node_type::floating_point:
      return node.as_floating_point()->get();
    case toml::node_type::string:
      return node.as_string()->get();
    case toml::node_type::array:
      return list_of(*node.as_array());
    default:
      return TomlOther{"a date or time"};
  }
}

// Behind the string that begins at `at`, with its kind of quotes: one, or three for several lines.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at).starts_with(three);
  for (at += lines ? 3 : 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (lines && text.substr(at).starts_with(three)) {
      at += 3;
      for (int more = 0; more < 2 && at < text.size() && text[at] == quote; ++more) ++at;  // of the string
      return at;
    } else if (!lines && (text[at] == quote || text[at] == '\n')) {
      return text[at] == quote ? at + 1 : at;
    }
  }
  return text.size();
}

// The parser limits how deep values nest (TOML_MAX_NESTED_VALUES), but not how many parts a key has: a.b.c is
// three levels, and who walks or frees them goes as deep. Dots in strings and comments are no key's.
void check_keys(std::string_view text) {
  constexpr int kMostDots = 64;  // of a line; ours have one
  int line = 1, dots = 0;
  size_t line_begin = 0, counted = 0;  // lines are counted up to here
  for (size_t at = 0; at < text.size();) {
    for (; counted < at; ++counted) {
      if (text[counted] == '\n') ++line, dots = 0, line_begin = counted + 1;
    }
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = end_of_string(text, at);
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '.' && ++dots > kMostDots) {
      throw TomlSyntaxError{fmt::format("more than {} dots in a line", kMostDots), line,
                            static_cast<int>(at - line_begin) + 1};
    } else {
      ++at;
    }
  }
}

void flatten(const toml::table& table, const std::string& prefix, int depth, std::vector<TomlNode>& nodes) {
  for (const auto& [key, node] : table) {
    const std::string part = is_bare(key.str()) ? std::string(key.str()) : base::quoted(key.str());
    const std::string name = prefix.empty() ? part : prefix + "." + part;
    const toml::source_position place = key.source().begin;
    nodes.push_back(
        {name, depth, static_cast<int>(place.line), static_cast<int>(place.column), value_of(node)});
    if (const toml::table* inner = node.as_table()) flatten(*inner, name, depth + 1, nodes);
  }
}

}  // namespace

std::vector<TomlNode> parse_toml(std::string_view text) {
  check_keys(text);
  std::vector<TomlNode> nodes;
  try {
    flatten(toml::parse(text), "", 1, nodes);
  } catch (const toml::parse_error& error) {
    const toml::source_position place = error.source().begin;
    throw TomlSyntaxError{std::string(error.description()), static_cast<int>(place.line),
                          static_cast<int>(place.column)};
  }
  std::stable_sort(nodes.begin(), nodes.end(), [](const TomlNode& a, const TomlNode& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return nodes;
}

std::string toml_string(std::string_view text) {
  return base::quoted(text, std::numeric_limits<size_t>::max());
}

std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace lockstep::recipe

#include "lockstep/jobs/yaml.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"

namespace lockstep::jobs {
namespace {

using nlohmann::ordered_json;

// A key or text that no YAML reader takes for anything else.
bool is_plain(const std::string& text) {
  constexpr const char* kOther[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  std::string low = text;
  std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool letters = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) &&
                       std::all_of(text.begin(), text.end(), [](unsigned char c) {
                         return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
                       });
  return letters && std::find(std::begin(kOther), std::end(kOther), low) == std::end(kOther);
}

// A block keeps lines as they are; what begins with a blank or has other control characters goes in quotes.
bool is_block(const std::string& text) {
  return text.find('\n') != std::string::npos && text.back() == '\n' && text[0] != ' ' && text[0] != '\n' &&
         std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return (c < 0x20 && c != '\n') || c >= 0x7f; });
}

void write(const ordered_json& value, size_t indent, std::string& out);

void write_scalar(const ordered_json& value, size_t indent, std::string& out) {
  if (!value.is_string()) {
    out += " " + value.dump() + "\n";
    return;
  }
  const std::string text = value;
  if (!text.empty() && is_block(text)) {
    out += " |\n";
    for (const std::string& line : base::split_lines(text))
      out += line.empty() ? "\n" : std::string(indent, ' ') + line + "\n";
  } else {
    out += " " + (is_plain(text) ? text : value.dump()) + "\n";
  }
}

void write(const ordered_json& value, size_t indent, std::string& out) {
  const std::string space(indent, ' ');
  if ((!value.is_object() && !value.is_array()) || value.empty()) return write_scalar(value, indent, out);
  if (!out.empty() && out.back() != '\n') out += "\n";
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) {
      out += space + (is_plain(key) ? key : ordered_json(key).dump()) + ":";
      write(item, indent + 2, out);
    } else if (item.is_object() && !item.empty()) {
      std::string inner;
      write(item, indent + 2, inner);
      out += space + "- " + inner.substr(indent + 2);
    } else {
      out += space + "-";
      write_scalar(item, indent + 2, out);
    }
  }
}

}  // namespace

std::string to_yaml(const ordered_json& document) {
  std::string out;
  write(document, 0, out);
  return out;
}

}  // namespace lockstep::jobs

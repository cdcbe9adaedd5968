#include "lockstep/recipe/edit_toml.h"

#include "lockstep/base/text.h"

namespace lockstep::recipe {

namespace {

// "[batch]" to "batch"; empty for lines that open no section. One of an array, [[data.mix]], keeps its
// brackets: no key that is set is in it.
std::string section_of(std::string_view line) {
  line = base::trimmed(line.substr(0, line.find('#')));
  if (line.size() < 3 || line.front() != '[' || line.back() != ']') return "";
  if (line[1] == '[') return std::string(line);
  return std::string(base::trimmed(line.substr(1, line.size() - 2)));
}

bool sets(std::string_view line, std::string_view name) {
  line = base::trimmed(line);
  if (!line.starts_with(name)) return false;
  return base::trimmed(line.substr(name.size())).starts_with('=');
}

// What stands behind the value: a comment, with the blanks before it. A # inside quotes is none.
std::string comment_of(const std::string& line) {
  char quote = 0;
  for (size_t k = line.find('='); k != std::string::npos && k < line.size(); ++k) {
    if (quote != 0) {
      if (line[k] == '\\' && quote == '"')
        ++k;
      else if (line[k] == quote)
        quote = 0;
    } else if (line[k] == '"' || line[k] == '\'') {
      quote = line[k];
    } else if (line[k] == '#') {
      return "  " + line.substr(k);
    }
  }
  return "";
}

void set(std::vector<std::string>& lines, const std::string& key, const std::string& value) {
  const size_t dot = key.find('.');
  const std::string section = key.substr(0, dot), name = key.substr(dot + 1);
  std::string at;
  size_t end = lines.size();  // behind the last line of the section that says something
  bool found = false;
  for (size_t k = 0; k < lines.size(); ++k) {
    const std::string opened = section_of(lines[k]);
    if (!opened.empty()) at = opened;
    // Keys before the first section may be written whole: batch.slices = 4.
    const bool whole = at.empty() && sets(lines[k], key);
    if (whole || (at == section && opened.empty() && sets(lines[k], name))) {
      lines[k] = (whole ? key : name) + " = " + value + comment_of(lines[k]);
      return;
    }
    if (at == section && !base::trimmed(lines[k]).empty()) end = k + 1, found = true;
  }
  if (!found) {
    if (!lines.empty() && !base::trimmed(lines.back()).empty()) lines.emplace_back();
    lines.push_back("[" + section + "]");
    end = lines.size();
  }
  lines.insert(lines.begin() + static_cast<ptrdiff_t>(end), name + " = " + value);
}

}  // namespace

std::string edit_toml(std::string_view text, const std::vector<std::pair<std::string, std::string>>& keys) {
  std::vector<std::string> lines = base::split_lines(text);
  for (const auto& [key, value] : keys) set(lines, key, value);
  return base::join(lines, "\n") + "\n";
}

}  // namespace lockstep::recipe

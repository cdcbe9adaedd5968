#include "lockstep/recipe/path_list.h"

#include <glob.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/text.h"
#include "lockstep/recipe/mix.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string home_of(const std::string& user) {
  if (const char* home = std::getenv("HOME"); user.empty() && home != nullptr && *home != '\0') return home;
  const passwd* entry = user.empty() ? ::getpwuid(::getuid()) : ::getpwnam(user.c_str());
  return entry != nullptr && entry->pw_dir != nullptr ? entry->pw_dir : "";
}

std::string found_from(const std::string& folder, const std::string& written) {
  const std::string path = with_home(written);
  if (folder.empty() || path.empty() || fs::path(path).is_absolute()) return path;
  const std::string beside = (fs::path(folder) / path).lexically_normal().string();
  return exists(beside) || (is_pattern(path) && !matches_of(beside).empty()) ? beside : path;
}

}  // namespace

std::vector<std::string> split_paths(const std::string& text) {
  if (exists(text)) return {text};
  std::vector<std::string> paths;
  std::string path;
  const auto end_path = [&] {
    if (const std::string_view name = base::trimmed(path); !name.empty()) paths.emplace_back(name);
    path.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == ',') {
      path += text[++i];
    } else if (text[i] == ',') {
      end_path();
    } else {
      path += text[i];
    }
  }
  end_path();
  return paths;
}

std::string join_paths(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    if (!text.empty()) text += ',';
    for (const char c : path) text += c == ',' ? std::string("\\,") : std::string(1, c);
  }
  return text;
}

std::string with_home(const std::string& path) {
  if (!path.starts_with('~')) return path;
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string home = home_of(path.substr(1, slash - 1));
  return home.empty() ? path : home + path.substr(slash);
}

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

std::string recipe_folder(const std::string& file) {
  const fs::path path(file);
  const bool of_run = path.filename() == "config.toml" && exists(path.parent_path() / "record.json");
  return of_run ? "" : path.parent_path().string();
}

void resolve_paths(const Key& key, const std::string& folder, Recipe& recipe) {
  if (key.names == Key::Names::nothing) return;
  std::string& value = *std::get<std::string*>(key.member(recipe));
  if (value.empty()) return;
  if (key.names == Key::Names::output) {
    value = with_home(value);
    return;
  }
  if (key.names == Key::Names::sources) {
    value = with_paths(value, [&](const std::string& path) { return found_from(folder, path); });
    return;
  }
  const std::vector<std::string> written = key.list ? split_paths(value) : std::vector{value};
  std::vector<std::string> found;
  for (const std::string& path : written) found.push_back(found_from(folder, path));
  if (found != written) value = key.list ? join_paths(found) : found.front();
}

}  // namespace lockstep::recipe

#include "lockstep/store/uri.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::store {
namespace {

struct Scheme {
  std::string_view written, meant;
};
constexpr Scheme kSchemes[] = {{"s3", "s3"},     {"gs", "gs"},      {"gcs", "gs"},
                               {"abfs", "abfs"}, {"abfss", "abfs"}, {"file", "file"}};

// What may follow a question mark. Anything else after one belongs to a name or a pattern.
constexpr std::string_view kQueryKeys[] = {"endpoint_override", "scheme", "region"};

const Scheme* scheme_of(std::string_view text) {
  for (const Scheme& one : kSchemes) {
    if (text.starts_with(one.written) && text.substr(one.written.size()).starts_with("://")) return &one;
  }
  return nullptr;
}

[[noreturn]] void refuse(const std::string& shown, const std::string& why) {
  throw base::ConfigError(286, fmt::format("{} is no address in a store: {}", base::quoted(shown, 200), why));
}

bool is_query(std::string_view text) {
  return std::any_of(std::begin(kQueryKeys), std::end(kQueryKeys), [&](std::string_view key) {
    return text.starts_with(key) && text.substr(key.size()).starts_with('=');
  });
}

// Cuts the query off and returns it.
std::string take_query(std::string& rest, const std::string& shown) {
  for (size_t mark = rest.find('?'); mark != std::string::npos; mark = rest.find('?', mark + 1)) {
    std::string query = rest.substr(mark + 1);
    if (!is_query(query)) continue;
    rest.resize(mark);
    for (size_t begin = 0; begin < query.size();) {
      const size_t end = std::min(query.find('&', begin), query.size());
      if (!is_query(std::string_view(query).substr(begin, end - begin)))
        refuse(shown, "after the question mark only endpoint_override=, scheme= and region= may stand");
      begin = end + 1;
    }
    return query;
  }
  return "";
}

std::string without_slashes(std::string_view path) {
  while (path.starts_with('/')) path.remove_prefix(1);
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::string(path);
}

void check_names(const std::string& path, const std::string& shown) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = std::string_view(path).substr(begin, end - begin);
    if (name == "." || name == ".." || name.empty())
      refuse(shown, "its path has a name that is empty, . or ..");
    begin = end + 1;
  }
  if (std::any_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < 32; }))
    refuse(shown, "it contains a control character");
}

}  // namespace

bool is_uri(std::string_view text) { return scheme_of(text) != nullptr; }

Uri parse_uri(const std::string& text) {
  const Scheme* const scheme = scheme_of(text);
  if (scheme == nullptr) refuse(text.substr(0, text.find('@')), "it begins with none of s3, gs, abfs, file");
  std::string rest = text.substr(scheme->written.size() + 3);
  Uri uri{.scheme = std::string(scheme->meant), .account = {}, .path = {}, .query = {}};
  const size_t at = rest.substr(0, rest.find('/')).rfind('@');
  const std::string shown = uri.scheme + "://" + rest.substr(at == std::string::npos ? 0 : at + 1);
  if (at != std::string::npos && uri.scheme != "abfs")
    refuse(shown, "a key or a password has no place in it; set it in the environment (docs/stores.md)");
  uri.query = take_query(rest, shown.substr(0, shown.find('?')));
  if (uri.scheme == "abfs" && at != std::string::npos) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    uri.account = rest.substr(at + 1, slash - at - 1);
    if (uri.account.empty() || rest.substr(0, at).find(':') != std::string::npos)
      refuse(shown, "expected abfs://container@account.dfs.core.windows.net/path");
    rest = rest.substr(0, at) + rest.substr(slash);
  }
  uri.path = without_slashes(rest);
  if (uri.path.empty() || (rest.starts_with('/') && uri.scheme != "file"))
    refuse(shown, "it names no bucket");
  check_names(uri.path, shown);
  return uri;
}

std::string Uri::shown() const { return shown(path); }

std::string Uri::shown(const std::string& key) const {
  if (scheme == "file") return "file:///" + key;
  if (account.empty()) return scheme + "://" + key;
  const size_t slash = std::min(key.find('/'), key.size());
  return fmt::format("{}://{}@{}{}", scheme, key.substr(0, slash), account, key.substr(slash));
}

std::string joined(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : without_slashes(folder) + "/" + name;
}

bool is_pattern(std::string_view path) { return path.find_first_of("*?[") != std::string_view::npos; }

bool matches(const std::string& pattern, const std::string& path) {
  for (size_t end = path.find('/');; end = path.find('/', end + 1)) {
    if (::fnmatch(pattern.c_str(), path.substr(0, end).c_str(), FNM_PATHNAME | FNM_PERIOD) == 0) return true;
    if (end == std::string::npos) return false;
  }
}

std::string folder_of_pattern(const std::string& pattern) {
  const size_t first = pattern.find_first_of("*?[");
  const size_t slash = pattern.rfind('/', first);
  return slash == std::string::npos ? "" : pattern.substr(0, slash);
}

}  // namespace lockstep::store

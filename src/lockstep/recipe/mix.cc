#include "lockstep/recipe/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::recipe {
namespace {

const std::vector<std::string> kWords = {"path", "weight", "name", "epochs", "eval", "kind", "field"};
constexpr double kMostWeight = 1e9;
constexpr int64_t kMostEpochs = 1'000'000'000;
constexpr size_t kMostSources = 256;

[[noreturn]] void refuse(const std::string& source, const std::string& why) {
  throw base::ConfigError(
      148, fmt::format("data.mix: in {} {}; write PATH=WEIGHT, or words such as \"path=web/ weight=0.7 "
                       "name=web epochs=2\"",
                       base::quoted(source, 120), why));
}

// At commas and semicolons; "\," is a comma.
std::vector<std::string> sources_in(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  const auto end_part = [&] {
    if (const std::string_view trimmed = base::trimmed(part); !trimmed.empty()) parts.emplace_back(trimmed);
    part.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == ',' || text[i + 1] == ';')) {
      part += text[++i];
    } else if (text[i] == ',' || text[i] == ';') {
      end_part();
    } else {
      part += text[i];
    }
  }
  end_part();
  return parts;
}

bool is_word(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos &&
         std::find(kWords.begin(), kWords.end(), word.substr(0, equals)) != kWords.end();
}

// A word with = that is misspelled, and no part of a path.
void refuse_unknown(const std::string& source, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return;
  const std::string name = word.substr(0, equals);
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != std::string::npos) return;
  const std::string near = base::nearest_word(name, kWords);
  refuse(source, fmt::format("{} is not known{}", base::quoted(name, 40),
                             near.empty() ? "" : fmt::format(", did you mean {}?", near)));
}

// "path=my data/web weight=0.7" to its words: what is none belongs to the one before it.
std::vector<std::string> words_in(const std::string& source) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= source.size();) {
    const size_t end = std::min(source.find(' ', begin), source.size());
    const std::string word = source.substr(begin, end - begin);
    begin = end + 1;
    if (words.empty() || is_word(word)) {
      if (!word.empty()) words.push_back(word);
    } else {
      refuse_unknown(source, word);
      words.back() += " " + word;
    }
  }
  for (std::string& word : words) word = std::string(base::trimmed(word));
  return words;
}

double weight_of(const std::string& source, const std::string& text) {
  const std::optional<double> value = base::parse_number<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0 || *value > kMostWeight)
    refuse(source, fmt::format("the weight {} is not a number above 0", base::quoted(text, 40)));
  return *value;
}

void take(MixSource& into, const std::string& source, const std::string& word, const std::string& value) {
  if (value.empty()) refuse(source, fmt::format("{} has no value", word));
  if (word == "path") {
    into.path = value;
  } else if (word == "weight") {
    into.weight = weight_of(source, value);
  } else if (word == "name") {
    into.name = value;
  } else if (word == "epochs") {
    into.epochs = base::parse_number<int64_t>(value);
    if (!into.epochs || *into.epochs < 1 || *into.epochs > kMostEpochs)
      refuse(source, fmt::format("epochs={} is not an integer from 1 on", value));
  } else if (word == "eval") {
    into.eval = value;
  } else if (word == "kind") {
    into.kind = value;
  } else {
    into.field = value;
  }
}

// "web/" of "web/*.parquet": the last part of a path that says something.
std::string name_of(const std::string& path) {
  std::filesystem::path at = std::filesystem::path(path).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  while (at.has_parent_path() && at.filename().string().find_first_of("*?[") != std::string::npos)
    at = at.parent_path();
  const std::string name = at.filename().string();
  const size_t point = name.find('.');
  return point == std::string::npos || point == 0 ? name : name.substr(0, point);
}

MixSource read_source(const std::string& source) {
  MixSource read;
  const std::vector<std::string> words = words_in(source);
  size_t next = 0;
  if (!is_word(words.front())) {  // PATH=WEIGHT, or PATH alone
    const std::string& first = words[next++];
    const size_t equals = first.rfind('=');
    const bool has_weight =
        equals != std::string::npos && base::parse_number<double>(first.substr(equals + 1));
    if (equals != std::string::npos && !has_weight && !std::filesystem::exists(first)) {
      const std::string near = base::nearest_word(first.substr(0, equals), kWords);
      if (!near.empty())
        refuse(source, fmt::format("{} is not known, did you mean {}?",
                                   base::quoted(first.substr(0, equals), 40), near));
      refuse(source, fmt::format("{} is not a number", base::quoted(first.substr(equals + 1), 40)));
    }
    read.path = has_weight ? first.substr(0, equals) : first;
    if (has_weight) read.weight = weight_of(source, first.substr(equals + 1));
  }
  for (; next < words.size(); ++next) {
    const size_t equals = words[next].find('=');
    take(read, source, words[next].substr(0, equals), words[next].substr(equals + 1));
  }
  if (read.path.empty()) refuse(source, "there is no path");
  if (read.name.empty()) read.name = name_of(read.path);
  return read;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ',' || c == ';') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::vector<MixSource> read_mix(const std::string& text) {
  std::vector<MixSource> sources;
  std::set<std::string> names;
  for (const std::string& source : sources_in(text)) {
    sources.push_back(read_source(source));
    if (!names.insert(sources.back().name).second)
      refuse(source, fmt::format("the name {} is that of another source; set name=",
                                 base::quoted(sources.back().name, 40)));
    if (sources.back().weight.has_value() != sources.front().weight.has_value())
      refuse(source,
             "a weight is given or missing, unlike in the first source; give one to each, or to none");
  }
  if (sources.empty()) refuse(text, "there is no source");
  if (sources.size() > kMostSources)
    refuse(text, fmt::format("there are more than {} sources", kMostSources));
  return sources;
}

std::string write_mix(const std::vector<MixSource>& sources) {
  std::vector<std::string> texts;
  for (const MixSource& source : sources) {
    std::string text = "path=" + source.path;
    if (source.weight) text += fmt::format(" weight={}", *source.weight);
    text += " name=" + source.name;
    if (source.epochs) text += fmt::format(" epochs={}", *source.epochs);
    if (!source.eval.empty()) text += " eval=" + source.eval;
    if (!source.kind.empty()) text += " kind=" + source.kind;
    if (!source.field.empty()) text += " field=" + source.field;
    texts.push_back(escaped(text));
  }
  return base::join(texts, ", ");
}

std::string with_paths(const std::string& text,
                       const std::function<std::string(const std::string&)>& change) {
  std::vector<MixSource> sources;
  try {
    sources = read_mix(text);
  } catch (const base::ConfigError&) {
    return text;
  }
  bool changed = false;
  for (MixSource& source : sources) {
    for (std::string* path : {&source.path, &source.eval}) {
      if (path->empty()) continue;
      const std::string found = change(*path);
      changed = changed || found != *path;
      *path = found;
    }
  }
  return changed ? write_mix(sources) : text;
}

}  // namespace lockstep::recipe

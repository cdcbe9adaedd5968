#include "lockstep/cli/spaced_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::cli {

namespace {

struct Spaced {
  std::string written, meant;
};

bool has_value(const std::string& word) { return word.find('=') < word.size() - 1; }  // npos: it has none

// From the key on: its sign and its value, as far as they are there.
Spaced join(const std::vector<std::string>& words, size_t first) {
  Spaced spaced{words[first], words[first]};
  for (size_t k = first + 1; k < std::min(first + 3, words.size()) && !has_value(spaced.meant); ++k) {
    const std::string& word = words[k];
    const bool signed_already = spaced.meant.ends_with("="), brings_sign = word.starts_with("=");
    if (word.empty() || (word.find('=') != std::string::npos && !brings_sign)) break;  // the next key
    spaced.written += " " + word;
    spaced.meant += (signed_already || brings_sign ? "" : "=") + word;
  }
  if (!has_value(spaced.meant)) spaced.meant += spaced.meant.ends_with("=") ? "VALUE" : "=VALUE";
  return spaced;
}

}  // namespace

void refuse_spaced_keys(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool key_alone = recipe::find_key(word) != nullptr;
    const bool value_apart = word.size() > 1 && word.find('=') == word.size() - 1 && i + 1 < words.size() &&
                             words[i + 1].find('=') == std::string::npos;
    const bool sign_apart = word.starts_with("=");
    if (!key_alone && !value_apart && !sign_apart) continue;
    const Spaced spaced = join(words, sign_apart && i > 0 ? i - 1 : i);
    throw base::ConfigError(107, fmt::format("{}: write {}, without spaces around '='",
                                             base::quoted(spaced.written), spaced.meant));
  }
}

}  // namespace lockstep::cli

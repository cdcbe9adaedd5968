#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/train.h"

namespace lockstep {

namespace {

// A word that a program takes: one of the two is set.
struct Taken {
  std::vector<std::string> spellings;
  std::string* text = nullptr;
  bool* on = nullptr;
};

std::vector<Taken> words_for(TrainOptions& options) {
  std::vector<Taken> all = {{.spellings = {"--run"}, .text = &options.folder},
                            {.spellings = {"--resume"}, .text = &options.resume},
                            {.spellings = {"--dry-run"}, .on = &options.dry_run}};
  for (const launch::Flag& flag : launch::flags()) {
    if (flag.any_program_only) continue;
    all.push_back({.spellings = launch::spellings(flag),
                   .text = flag.text ? &(options.launch.*flag.text) : nullptr,
                   .on = flag.on ? &(options.launch.*flag.on) : nullptr});
  }
  return all;
}

[[noreturn]] void refuse(const std::string& word, const std::vector<Taken>& known) {
  std::vector<std::string> names;
  for (const Taken& one : known) names.insert(names.end(), one.spellings.begin(), one.spellings.end());
  const std::string near = base::nearest_word(word, names);
  throw base::ConfigError(
      109, fmt::format("unexpected argument {}; {}", base::quoted(word),
                       near.empty() ? "expected a recipe file, key=value, --run DIR, --resume "
                                      "auto|never|PATH, --dry-run and launcher options such as --nproc 2"
                                    : "did you mean " + near + "?"));
}

// "--nproc 4" or "--nproc=4".
void take_option(const std::vector<std::string>& words, size_t& k, const std::vector<Taken>& known) {
  const size_t sign = words[k].find('=');
  const std::string name = words[k].substr(0, sign);
  for (const Taken& one : known) {
    if (std::find(one.spellings.begin(), one.spellings.end(), name) == one.spellings.end()) continue;
    if (one.on != nullptr) {
      *one.on = true;
      return;
    }
    const bool apart = sign == std::string::npos;
    if (apart && k + 1 == words.size()) throw base::ConfigError(109, name + " needs a value");
    *one.text = apart ? words[++k] : words[k].substr(sign + 1);
    return;
  }
  refuse(words[k], known);
}

}  // namespace

CommandLine read_command_line(const std::vector<std::string>& words,
                              const std::vector<std::string>& defaults) {
  CommandLine line;
  const std::vector<Taken> known = words_for(line.options);
  std::vector<std::string>& keys = line.recipe.overrides;
  for (size_t k = 0; k < words.size(); ++k) {
    if (words[k].starts_with("-")) {
      take_option(words, k, known);
    } else if (words[k].find('=') != std::string::npos) {
      keys.push_back(words[k]);
    } else if (line.recipe.file.empty()) {
      line.recipe.file = words[k];
    } else {
      refuse(words[k], known);
    }
  }
  if (line.recipe.file.empty()) keys.insert(keys.begin(), defaults.begin(), defaults.end());
  return line;
}

}  // namespace lockstep

// A recipe as TOML: plain for config.toml, with every key explained for `lockstep init`.
#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {
namespace {

constexpr size_t kCommentWidth = 98;

std::string comment(const std::string& text) {
  std::string out;
  for (const std::string& line : base::wrapped(text, kCommentWidth)) out += "# " + line + "\n";
  return out;
}

constexpr const char* kIntroduction =
    "# A Lockstep recipe: everything that decides what a run computes.\n#\n#     lockstep train THIS_FILE    "
    "               train\n#     lockstep train THIS_FILE optim.lr=1e-3     train with one key changed\n#    "
    " lockstep explain optim.lr                  explain a key\n#\n# Every key is listed with its default; "
    "delete the ones you do not change.\n";

}  // namespace

std::string write_toml(const Recipe& recipe) {
  std::string out;
  for (const Section& section : recipe_sections()) {
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section.name);
    for (const Key& key : recipe_keys()) {
      if (key.section() == section.name)
        out += fmt::format("{} = {}\n", key.last_part(), value_text(key, recipe));
    }
  }
  return out;
}

std::string commented_recipe() {
  std::string out = kIntroduction;
  for (const Section& section : recipe_sections()) {
    out += fmt::format("\n\n# {}\n[{}]\n", section.meaning, section.name);
    for (const Key& key : recipe_keys()) {
      if (key.section() != section.name) continue;
      const std::string allowed = allowed_text(key);
      out += "\n" + comment(key.meaning);
      out += comment(fmt::format("{}{}{}; default {}", type_text(key), allowed.empty() ? "" : ", ", allowed,
                                 default_text(key)));
      out += fmt::format("{} = {}\n", key.last_part(), default_text(key));
    }
  }
  return out;
}

}  // namespace lockstep::recipe

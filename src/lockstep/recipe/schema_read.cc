// A recipe from a file and the command line, each value checked against its row.
#include <fmt/format.h>

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/recipe/mistakes.h"
#include "lockstep/recipe/other_names.h"
#include "lockstep/recipe/path_list.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/recipe/schema_assign.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::recipe {
namespace {

constexpr int64_t kMostRecipeBytes = 1 << 20;

bool is_section(std::string_view name) {
  for (const Section& section : recipe_sections()) {
    if (section.name == name) return true;
  }
  return false;
}

// `prefix` is "first.toml:12: " or empty.
[[noreturn]] void refuse_unknown(const std::string& prefix, const std::string& name) {
  const std::string shown = name.size() > 100 ? base::quoted(name) : name;
  throw base::ConfigError(101, fmt::format("{}{} is not a recipe key; {}", prefix, shown, remedy_for(name)));
}

[[noreturn]] void refuse_section_as_value(const std::string& prefix, const std::string& name) {
  if (const std::string_view advice = advice_for(name); !advice.empty()) {
    throw base::ConfigError(102, fmt::format("{}{}", prefix, advice));
  }
  for (const Key& key : recipe_keys()) {
    if (key.section() != name) continue;
    throw base::ConfigError(102, fmt::format("{}{} is a section, not a value; set its keys, for example {}",
                                             prefix, name, key.example));
  }
  refuse_unknown(prefix, name);
}

void check_table(const std::string& prefix, const std::string& name) {
  if (is_section(name)) return;
  if (const Key* key = find_key(name)) {
    throw base::ConfigError(
        102, fmt::format("{}{} is a key with a value, not a section; write {}", prefix, name, key->example));
  }
  std::vector<std::string> names;
  for (const Section& section : recipe_sections()) names.push_back(section.name);
  const std::string near = base::nearest_word(name, names);
  const std::string remedy =
      near.empty() ? "sections are " + base::join(names, ", ") : "did you mean [" + near + "]?";
  throw base::ConfigError(101, fmt::format("{}[{}] is not a section of a recipe; {}", prefix, name, remedy));
}

// A misspelt section with keys in it is reported by its first key, which names the right place.
bool has_children(const std::vector<TomlNode>& nodes, const TomlNode& table) {
  for (const TomlNode& node : nodes) {
    if (node.depth == table.depth + 1 && node.name.starts_with(table.name + ".")) return true;
  }
  return false;
}

std::string read_recipe_file(const std::string& file) {
  base::ReadResult read = base::try_read_file(file, kMostRecipeBytes);
  if (!read.problem.empty()) {
    throw base::ConfigError(
        106, fmt::format("cannot read recipe {}: {}; `lockstep init FILE` writes one to start from",
                         base::quoted(file, 200), read.problem));
  }
  return std::move(read.text);
}

// Where a recipe's text came from.
struct Source {
  std::string name;    // in messages: "first.toml", "default recipe"
  std::string folder;  // its paths are looked for there first; empty: the working folder
};

void take_node(const std::vector<TomlNode>& nodes, const TomlNode& node, const Source& source,
               Resolved& resolved) {
  const std::string place = fmt::format("{}:{}", source.name, node.line);
  if (std::holds_alternative<TomlTable>(node.value)) {
    const bool misspelt_parent = node.depth == 1 && !is_section(node.name) && has_children(nodes, node);
    if (!misspelt_parent) check_table(place + ": ", node.name);
  } else if (const Key* key = find_key(node.name)) {
    assign({*key, node.value, written_as(node.value), place}, resolved);
    resolve_paths(*key, source.folder, resolved.recipe);
  } else if (is_section(node.name)) {
    refuse_section_as_value(place + ": ", node.name);
  } else {
    refuse_unknown(place + ": ", node.name);
  }
}

void read_text_into(const std::string& text, const Source& source, Resolved& resolved, Mistakes& mistakes) {
  std::vector<TomlNode> nodes;
  try {
    nodes = parse_toml(text);
  } catch (const TomlSyntaxError& error) {
    throw base::ConfigError(105, fmt::format("{}:{}:{}: not valid TOML: {}", source.name, error.line,
                                             error.column, base::cut_to_width(error.description, 200)));
  }
  std::string wrong = ".";  // the last that was; what lies in it is part of the same mistake
  for (const TomlNode& node : nodes) {
    if (node.name.starts_with(wrong + ".")) continue;
    if (!mistakes.note([&] { take_node(nodes, node, source, resolved); })) wrong = node.name;
  }
}

// The value of an override as TOML has it; nothing if it is not a TOML value.
std::optional<TomlValue> toml_value(const std::string& text) {
  try {
    const std::vector<TomlNode> nodes = parse_toml("value = " + text);
    if (nodes.size() == 1 && text.find('\n') == std::string::npos) return nodes[0].value;
  } catch (const TomlSyntaxError&) {  // then it is plain text
  }
  return std::nullopt;
}

void override_with(const std::string& words, Resolved& resolved) {
  const size_t equals = words.find('=');
  if (equals == std::string::npos || base::trimmed(std::string_view(words).substr(0, equals)).empty()) {
    throw base::ConfigError(107,
                            fmt::format("{} is not an override; write key=value, for example optim.lr=1e-3",
                                        base::quoted(words)));
  }
  const std::string name(base::trimmed(std::string_view(words).substr(0, equals)));
  const std::string text(base::trimmed(std::string_view(words).substr(equals + 1)));
  const Key* key = find_key(name);
  if (!key) {
    if (is_section(name)) refuse_section_as_value("", name);
    refuse_unknown("", name);
  }
  std::optional<TomlValue> value = toml_value(text);
  // For text the shell has eaten the quotes: run.name=2024 and run.name=true are names.
  const bool is_text = value && (std::holds_alternative<std::string>(*value) || is_list_for(*key, *value));
  if (!value || (key->type == Key::Type::text && !is_text)) value = text;
  const bool plain_text = std::holds_alternative<std::string>(*value);
  assign({*key, *value, plain_text ? written_as(*value) : text, kCommandLine}, resolved);
  resolve_paths(*key, "", resolved.recipe);
}

}  // namespace

void set_value(Recipe& recipe, std::string_view name, const std::string& text) {
  const Key* key = find_key(name);
  LS_ASSERT(key != nullptr, "no recipe key " + std::string(name));
  Resolved resolved{recipe, {}};
  const std::optional<TomlValue> value = toml_value(text);
  assign({*key, value ? *value : TomlValue(text), text, "a preset"}, resolved);
  recipe = resolved.recipe;
}

Resolved read_recipe(const RecipeSource& source) {
  Resolved resolved;
  for (const Key& key : recipe_keys()) resolved.origin[key.name] = "default";
  Mistakes mistakes;
  mistakes.note([&] {
    if (!source.file.empty()) {
      read_text_into(read_recipe_file(source.file), {source.file, recipe_folder(source.file)}, resolved,
                     mistakes);
    } else if (!source.text.empty()) {
      read_text_into(source.text, {"recipe", ""}, resolved, mistakes);
    } else if (source.default_recipe) {
      read_text_into(std::string(default_recipe()), {kDefaultRecipe, ""}, resolved, mistakes);
    }
  });
  for (const std::string& words : source.overrides) mistakes.note([&] { override_with(words, resolved); });
  mistakes.refuse("the recipe");
  if (source.default_recipe) fit_default_recipe(resolved);
  return resolved;
}

}  // namespace lockstep::recipe

// One value into its place in a recipe, checked against the key's row: type, range, choices.
//
// Internal to the schema: read_recipe() finds the values, this judges them.
#pragma once

#include <string>

#include "lockstep/recipe/schema.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::recipe {

// A value on its way into the recipe, with what an error has to say about it.
struct Setting {
  const Key& key;
  TomlValue value;
  std::string written;  // as the user wrote it: `"four"`
  std::string place;    // "first.toml:12", "command line"
};

// A value as TOML writes it, short enough for an error.
std::string written_as(const TomlValue& value);

// Whether the key takes this value as a list: of names, or of numbers where it does not name files.
bool is_list_for(const Key& key, const TomlValue& value);

// ConfigError 102 (type), 103 (range) or 104 (text not allowed) unless the value fits the key.
void assign(const Setting& setting, Resolved& resolved);

}  // namespace lockstep::recipe

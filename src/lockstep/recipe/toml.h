// A TOML file as a flat list: one node a table or value, each with its dotted name and place.
//
// The heavy parser is included by toml.cc alone. Errors are given to the caller as text and place,
// because only the caller knows what the text was: a recipe, an override.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::recipe {

struct TomlTable {};
struct TomlList {
  std::vector<std::string> items;  // each as text
  bool of_text = true;             // false: whole numbers
  bool of_tables = false;          // items are tables of plain values: "match=*.bias weight_decay=0.0"
};
struct TomlOther {
  std::string what;  // "a list" of other things or of several kinds, "a date"
};

using TomlValue = std::variant<TomlTable, TomlList, TomlOther, bool, int64_t, double, std::string>;

struct TomlNode {
  std::string name;  // "optim.lr"
  int depth = 0;     // 1 for "optim", 2 for "optim.lr"
  int line = 0, column = 0;
  TomlValue value;
};

struct TomlSyntaxError {
  std::string description;
  int line = 0, column = 0;
};

// In the order of the text, a table before what is in it. Throws TomlSyntaxError.
std::vector<TomlNode> parse_toml(std::string_view text);

std::string toml_string(std::string_view text);  // "in \"quotes\""
std::string toml_number(double value);           // shortest text that reads back to the same bits: 0.003, 1.0

}  // namespace lockstep::recipe

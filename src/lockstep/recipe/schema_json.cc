// The recipe's JSON Schema, with which editors complete and check recipes as they are written.
#include <nlohmann/json.hpp>

#include "lockstep/base/number.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {
namespace {

using Json = nlohmann::ordered_json;

// Whole limits as integers, so that "minimum" of a whole number reads 1 and not 1.0.
Json limit(double value) {
  return value == static_cast<double>(static_cast<int64_t>(value)) ? Json(static_cast<int64_t>(value))
                                                                   : Json(value);
}

void add_range(const Key& key, Json& schema) {
  if (key.at_least) schema["minimum"] = limit(*key.at_least);
  if (key.above) schema["exclusiveMinimum"] = limit(*key.above);
  if (key.at_most) schema["maximum"] = limit(*key.at_most);
}

bool is_number(const std::string& choice) {
  return !choice.empty() && choice.find_first_not_of("0123456789") == std::string::npos;
}

// Choices that are numbers may be written as numbers too: zero = 3.
void add_choices(const Key& key, Json& schema) {
  schema["enum"] = key.choices;
  for (const std::string& choice : key.choices) {
    if (is_number(choice)) schema["enum"].push_back(*base::parse_number(choice));
  }
  if (schema["enum"].size() > key.choices.size()) schema["type"] = {"string", "integer"};
}

// Limits of text do not touch lists, and the other way round.
void add_text(const Key& key, Json& schema) {
  schema["type"] = "string";
  if (!key.choices.empty()) add_choices(key, schema);
  if (!key.pattern.empty()) schema["pattern"] = "^(" + key.pattern + ")$";
  if (!key.list) return;
  schema["type"] = {"string", "array"};
  schema["items"]["type"] = key.tables                         ? Json{"string", "object"}
                            : key.names == Key::Names::nothing ? Json{"string", "integer"}
                                                               : Json("string");
}

Json key_schema(const Key& key) {
  Json schema;
  schema["description"] = key.meaning;
  switch (key.type) {
    case Key::Type::boolean:
      schema["type"] = "boolean";
      break;
    case Key::Type::integer:
      schema["type"] = "integer";
      add_range(key, schema);
      break;
    case Key::Type::number:
      schema["type"] = "number";
      add_range(key, schema);
      break;
    case Key::Type::text:
      add_text(key, schema);
      break;
    case Key::Type::auto_integer: {
      Json number = {{"type", "integer"}};
      add_range(key, number);
      schema["anyOf"] = {number, {{"const", "auto"}}};
      break;
    }
  }
  schema["default"] = Json::parse(default_text(key));  // what TOML and JSON write alike
  return schema;
}

}  // namespace

std::string json_schema() {
  Json sections = Json::object();
  for (const Section& section : recipe_sections()) {
    Json keys = Json::object();
    for (const Key& key : recipe_keys()) {
      if (key.section() == section.name) keys[key.last_part()] = key_schema(key);
    }
    sections[section.name] = {{"description", section.meaning},
                              {"type", "object"},
                              {"properties", keys},
                              {"additionalProperties", false}};
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "Lockstep recipe"},
                       {"type", "object"},
                       {"properties", sections},
                       {"additionalProperties", false}};
  return schema.dump(2) + "\n";
}

}  // namespace lockstep::recipe

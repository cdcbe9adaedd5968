#include "lockstep/model/families/huggingface_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::model {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostFactors = 128;  // of a RoPE scaling: half a head
constexpr size_t kMostLayers = 4096;

}  // namespace

ConfigReader::ConfigReader(const std::string& text, const std::string& path)
    : path_(path), json_(Json::parse(text, nullptr, false)) {
  if (!json_.is_object()) refuse("it is not a JSON object");
}

ConfigReader::ConfigReader(Json json, std::string path) : path_(std::move(path)), json_(std::move(json)) {}

int64_t ConfigReader::size(const char* key) const {
  if (!has(key)) refuse(fmt::format("\"{}\" is missing", key));
  if (!json_[key].is_number_integer() || json_[key].get<double>() < 1 || json_[key].get<double>() > 1e12)
    refuse(fmt::format("\"{}\" is not a size", key));
  return json_[key].get<int64_t>();
}

int64_t ConfigReader::size(const char* key, const char* other_key, int64_t otherwise) const {
  const int64_t size_here = size(key, size(other_key, otherwise));
  if (const int64_t there = size(other_key, size_here); there != size_here)
    refuse(fmt::format("\"{}\" is {}, but \"{}\" is {}", key, size_here, other_key, there));
  return size_here;
}

double ConfigReader::number(const char* key) const {
  if (!has(key)) refuse(fmt::format("\"{}\" is missing", key));
  if (!json_[key].is_number() || !(json_[key].get<double>() > 0))
    refuse(fmt::format("\"{}\" is not a positive number", key));
  return json_[key].get<double>();
}

bool ConfigReader::truth(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_[key].is_boolean()) refuse(fmt::format("\"{}\" is neither true nor false", key));
  return json_[key].get<bool>();
}

std::string ConfigReader::text(const char* key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_[key].is_string()) refuse(fmt::format("\"{}\" is not a string", key));
  return json_[key].get<std::string>();
}

std::vector<double> ConfigReader::numbers(const char* key) const {
  if (!has(key)) refuse(fmt::format("\"{}\" is missing", key));
  std::vector<double> all;
  for (const Json& one : json_[key]) {
    all.push_back(one.is_number() ? one.get<double>() : 0);
    if (!json_[key].is_array() || !(all.back() > 0) || all.size() > kMostFactors)
      refuse(fmt::format("\"{}\" is not a list of up to {} positive numbers", key, kMostFactors));
  }
  return all;
}

std::vector<std::string> ConfigReader::texts(const char* key) const {
  std::vector<std::string> all;
  if (!has(key) || !json_[key].is_array()) refuse(fmt::format("\"{}\" is not a list", key));
  for (const Json& one : json_[key]) {
    if (!one.is_string() || all.size() >= kMostLayers)
      refuse(fmt::format("\"{}\" is not a list of names", key));
    all.push_back(one.get<std::string>());
  }
  return all;
}

int64_t ConfigReader::counted(const char* key) const {
  if (!has(key) || !json_[key].is_number_unsigned() || json_[key].get<double>() > 1e12)
    refuse(fmt::format("\"{}\" is not an integer", key));
  return json_[key].get<int64_t>();
}

std::vector<int64_t> ConfigReader::counts(const char* key) const {
  std::vector<int64_t> all;
  if (!has(key) || !json_[key].is_array()) refuse(fmt::format("\"{}\" is not a list", key));
  for (const Json& one : json_[key]) {
    if (!one.is_number_unsigned() || all.size() >= kMostLayers)
      refuse(fmt::format("\"{}\" is not a list of integers", key));
    all.push_back(one.get<int64_t>());
  }
  return all;
}

void ConfigReader::require(const char* key, bool value) const {
  if (truth(key, value) != value) refuse(fmt::format("{} is {}", key, !value));
}

void ConfigReader::require_none(const char* key) const {
  if (!has(key) || json_[key] == Json(false) || json_[key] == Json(0)) return;
  refuse(fmt::format("{} is {}", key, json_[key].dump()));
}

std::string ConfigReader::activation(const char* key, const char* usual) const {
  const std::string name = text(key, usual);
  if (!activation_named(name)) {
    refuse(fmt::format("{} {} is not supported; supported are {}", key, base::quoted(name),
                       base::join(activation_names(), ", ")));
  }
  return name;
}

ConfigReader ConfigReader::part(const char* key) const {
  if (has(key) && !json_[key].is_object()) refuse(fmt::format("\"{}\" is not an object", key));
  return {has(key) ? json_[key] : Json::object(), path_};
}

void ConfigReader::refuse(const std::string& why) const {
  throw base::ConfigError(177, fmt::format("{} describes an unsupported model: {}", path_, why));
}

std::string toml(int64_t n) { return std::to_string(n); }
std::string toml(double n) { return fmt::format("{}", n); }
std::string toml(bool yes) { return yes ? "true" : "false"; }
std::string toml(const std::vector<double>& numbers) {
  return fmt::format("\"{}\"", fmt::join(numbers, ","));
}

}  // namespace lockstep::model

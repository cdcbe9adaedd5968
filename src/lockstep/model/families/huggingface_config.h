// config.json for the files of families: read with the defaults that transformers gives to what is left out,
// and written. What cannot be started from is refused by name (ConfigError 177), never guessed.
//
//     ConfigSettings read(const ConfigReader& c) {
//       return {{"model.layers", toml(c.size("num_hidden_layers", 32))}, ...};
//     }
//     void write(const recipe::Recipe::Model& m, ConfigWriter& c) {
//       c["num_hidden_layers"] = m.layers;
//     }
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/model/families/family.h"

namespace lockstep::model {

class ConfigReader {
 public:
  ConfigReader(const std::string& text, const std::string& path);

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  bool names(const char* key) const { return json_.contains(key); }  // be it with null
  bool holds_something(const char* key) const { return has(key) && !json_[key].empty(); }
  int64_t size(const char* key) const;
  int64_t size(const char* key, int64_t otherwise) const { return has(key) ? size(key) : otherwise; }
  // A model's own name of a size, or the one that other models have, which transformers reads as well.
  int64_t size(const char* key, const char* other_key, int64_t otherwise) const;
  double number(const char* key) const;  // above 0
  double number(const char* key, double otherwise) const { return has(key) ? number(key) : otherwise; }
  bool truth(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;
  std::vector<double> numbers(const char* key) const;  // above 0
  std::vector<std::string> texts(const char* key) const;
  int64_t counted(const char* key) const;              // from 0 on
  std::vector<int64_t> counts(const char* key) const;  // the same, a list
  // Says no where the file says anything but this.
  void require(const char* key, bool value) const;
  void require_none(const char* key) const;                          // absent, null, false or 0
  std::string activation(const char* key, const char* usual) const;  // one that is known here
  ConfigReader part(const char* key) const;  // an object inside, empty where there is none
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  ConfigReader(nlohmann::json json, std::string path);
  std::string path_;
  nlohmann::json json_;
};

class ConfigWriter {
 public:
  nlohmann::json& operator[](const char* key) { return json_[key]; }
  std::string to_text() const { return json_.dump(2) + "\n"; }

 private:
  nlohmann::json json_;
};

// Values as a recipe writes them.
std::string toml(int64_t n);
std::string toml(double n);
std::string toml(bool yes);
std::string toml(const std::vector<double>& numbers);

}  // namespace lockstep::model

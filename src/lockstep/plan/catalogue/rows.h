// A catalogue's TOML as rows of named values, each of which must be asked for: what is left over is a
// mistake.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/recipe/toml.h"

namespace lockstep::plan {

class Row {
 public:
  Row(std::string file, std::string kind, std::string name, int line)
      : file_(std::move(file)), kind_(std::move(kind)), name_(std::move(name)), line_(line) {}
  const std::string& kind() const { return kind_; }  // "device"
  const std::string& name() const { return name_; }  // "H100"
  void add(const recipe::TomlNode& node, const std::string& key);

  std::string text(const std::string& key);  // must be there
  std::string text_or(const std::string& key, const std::string& otherwise);
  double number(const std::string& key, double least, double most);
  double number_or(const std::string& key, double otherwise, double least, double most);
  bool yes_or_no(const std::string& key);
  // Keys that begin with `prefix` and a dot, without it, in the order of the file; they count as asked for.
  std::vector<std::pair<std::string, double>> numbers_under(const std::string& prefix);
  void refuse_others() const;  // ConfigError 570 for a key that nobody asked for
  [[noreturn]] void refuse(int line, const std::string& why) const;  // line 0: that of the row

 private:
  struct Value {
    recipe::TomlValue value;
    int line = 0;
    bool asked = false;
  };
  Value* find(const std::string& key);
  std::string file_, kind_, name_;
  int line_;
  std::map<std::string, Value> values_;
  std::vector<std::string> order_;
};

// Tables of two levels, [kind.name]. ConfigError 570.
std::vector<Row> read_rows(std::string_view text, const std::string& file);

}  // namespace lockstep::plan

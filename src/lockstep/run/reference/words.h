// A recipe as the reference reads it: "key=value" words, the later one counts. For tests.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::reference {

class Words {
 public:
  explicit Words(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const size_t at = word.find('=');
      values_[word.substr(0, at)] = word.substr(at + 1);
    }
  }
  // `otherwise` is the default that the docs name.
  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }
  double number(const std::string& key, double otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : std::stod(found->second);
  }
  size_t count(const std::string& key, size_t otherwise) const {
    return static_cast<size_t>(number(key, static_cast<double>(otherwise)));
  }
  bool flag(const std::string& key, bool otherwise) const {
    return text(key, otherwise ? "true" : "false") == "true";
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace lockstep::reference

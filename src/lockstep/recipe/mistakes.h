// All mistakes of a recipe at once: each is noted, reading goes on, and in the end one error names them all.
//
//     Mistakes mistakes;
//     for (const Row& row : rows) mistakes.note([&] { take(row); });
//     mistakes.refuse("the recipe");  // ConfigError 112 with a line each; of one mistake, that itself
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::recipe {

class Mistakes {
 public:
  template <class Call>
  bool note(const Call& call) {  // whether there was none
    try {
      call();
      return true;
    } catch (const base::ConfigError& error) {
      all_.push_back(error);
      return false;
    }
  }
  void refuse(const std::string& what) const;  // returns if there are none

 private:
  std::vector<base::ConfigError> all_;
};

}  // namespace lockstep::recipe

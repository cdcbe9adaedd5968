// What each error number means at length: `lockstep explain LS0107` prints its row.
//
// A new error is one row in the errors.cc of the folder that throws it; tables/error_catalogue.cc puts the
// folders' rows together. A test finds every number thrown in the sources and fails if its row is missing.
// Ranges: 01xx recipe and usage, 02xx data, 03xx checkpoint, 04xx device and memory, 05xx communication and
// launch, 06xx run and numerics, 07xx set-up, 08xx files. Numbers are never reused.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

struct ErrorExplanation {
  int number;
  std::string title;                  // what happened, in a few words
  std::vector<std::string> causes;    // most likely first
  std::vector<std::string> remedies;  // what to type, most useful first
};

const std::vector<ErrorExplanation>& error_catalogue();  // all folders', by number
const ErrorExplanation* find_error(int number);          // null if there is no such error

// "LS0107", "ls107", "0107" or "107" to 107.
std::optional<int> parse_code(std::string_view text);

}  // namespace lockstep::base

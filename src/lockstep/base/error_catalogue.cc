#include "lockstep/base/error_catalogue.h"

namespace lockstep::base {

std::optional<int> parse_code(std::string_view text) {
  if (text.size() >= 2 && (text[0] | 0x20) == 'l' && (text[1] | 0x20) == 's') text.remove_prefix(2);
  if (text.empty() || text.size() > 4) return std::nullopt;
  int number = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = 10 * number + (c - '0');
  }
  return number;
}

}  // namespace lockstep::base

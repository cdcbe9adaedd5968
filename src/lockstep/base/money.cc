#include "lockstep/base/money.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::base {

std::optional<double> parse_dollars(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('$')) text.remove_prefix(1);
  for (const std::string_view unit : {"USD", "usd", "$"}) {
    if (text.ends_with(unit)) text = trimmed(text.substr(0, text.size() - unit.size()));
  }
  double times = 1;
  if (text.ends_with('k')) times = 1000, text.remove_suffix(1);
  std::string digits;
  for (const char c : text) {
    if (c == ',') continue;
    if ((c < '0' || c > '9') && c != '.') return std::nullopt;  // no signs, no exponents, no "inf"
    digits += c;
  }
  const std::optional<double> number = parse_number<double>(digits);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  return *number * times;
}

std::string dollars(double usd) {
  if (usd < 100) return fmt::format("${:.2f}", usd);
  std::string digits = fmt::format("{:.0f}", usd);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return "$" + digits;
}

}  // namespace lockstep::base

// Dollars in text.
//
//     parse_dollars("$1,200")    1200; also "50", "50 USD", "1.5k"; nothing for anything else
//     dollars(1204.4)            "$1,204"
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::base {

std::optional<double> parse_dollars(std::string_view text);
std::string dollars(double usd);  // "$1,204", "$0.35"

}  // namespace lockstep::base

// Base64, as tiktoken's files, tekken.json and charsmaps are written in.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::text {

std::optional<std::string> from_base64(std::string_view text);  // nothing: it is none

}  // namespace lockstep::text

// JSON from outside: bounded in depth and size, no key twice, text valid UTF-8, else DataError.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

// The error bears `number` and starts with `what`, the thing the text is from: "model.safetensors's header".
nlohmann::json parse_strict(std::string_view text, int number, const std::string& what);

// Whether brackets in the text, JSON or not, stand deeper in each other: what others copy must not be so deep
// that the copy overflows the stack.
bool nested_deeper(std::string_view text, int levels);

}  // namespace lockstep::checkpoint

// Numbers in text: all of it or none, whatever the locale is.
//
//     parse_number<int>("29400")            // 29400; nothing for "29400x", "", " 1" or one that does not fit
//     take_number(text)                     // "3,5": 3, and the text is ",5"
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::base {

// The number that the text begins with; the text goes on behind it. Nothing: it begins otherwise, or the
// number does not fit, and the text stays as it was.
template <class Number = int64_t>
std::optional<Number> take_number(std::string_view& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// The number that is the whole text.
template <class Number = int64_t>
std::optional<Number> parse_number(std::string_view text) {
  const std::optional<Number> number = take_number<Number>(text);
  return text.empty() ? number : std::nullopt;
}

// The number that the text begins with, whatever comes behind it.
template <class Number = int64_t>
std::optional<Number> leading_number(std::string_view text) {
  return take_number<Number>(text);
}

}  // namespace lockstep::base

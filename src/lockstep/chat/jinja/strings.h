// Python's notions of space around a text, and of its lines.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::chat::jinja {

// What str.strip(), lstrip() and rstrip() leave; `characters` null: all space, as Unicode has it.
std::string_view left_stripped(std::string_view text, const std::string_view* characters = nullptr);
std::string_view right_stripped(std::string_view text, const std::string_view* characters = nullptr);
inline std::string_view stripped(std::string_view text, const std::string_view* characters = nullptr) {
  return left_stripped(right_stripped(text, characters), characters);
}
bool is_space(std::string_view character);

// str.splitlines(): all of Unicode's line ends count, "\r\n" as one.
enum class LineEnds { kept, dropped };
std::vector<std::string_view> lines_of(std::string_view text, LineEnds ends);

}  // namespace lockstep::chat::jinja

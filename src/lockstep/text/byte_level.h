// GPT-2's alphabet for bytes: each of the 256 is a printable character, so that tokens of bytes can be
// written down.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::text {

std::string bytes_to_letters(std::string_view bytes);
const std::string& letter_of_byte(unsigned char byte);
// The bytes, or false: a character of `text` is none of the alphabet.
bool letters_to_bytes(std::string_view text, std::string& out);

}  // namespace lockstep::text

// The normal forms of Unicode, and small letters, as `tokenizers` makes them.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::text {

enum class Form : unsigned char {
  nfc,
  nfd,
  nfkc,
  nfkd,
  nfc_newer
};  // nfc_newer: as Python does it, by a newer Unicode

// Whole UTF-8 in and out. What NFC and NFKC leave as it is, as most text, costs one look a character.
std::string normal_form(Form form, std::string_view text);
bool is_in_form(Form form, std::string_view text);  // false where that takes more than a look

std::string lowercase(std::string_view text);  // character by character

}  // namespace lockstep::text

#include "lockstep/text/byte_level.h"

#include <array>

#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

// Printable ones of Latin-1 stand for themselves, the others for U+0100 and following.
struct Alphabet {
  std::array<std::string, 256> letters;
  std::array<int, 0x144> bytes;
  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const uint32_t code = printable ? byte : next++;
      append_char(letters[byte], code);
      bytes[code] = static_cast<int>(byte);
    }
  }
};
const Alphabet& alphabet() {
  static const Alphabet one;
  return one;
}

}  // namespace

const std::string& letter_of_byte(unsigned char byte) { return alphabet().letters[byte]; }

std::string bytes_to_letters(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += letter_of_byte(static_cast<unsigned char>(byte));
  return out;
}

bool letters_to_bytes(std::string_view text, std::string& out) {
  out.clear();
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const uint32_t code = next_char(at);
    const int byte = code < alphabet().bytes.size() ? alphabet().bytes[code] : -1;
    if (byte < 0) return false;
    out += static_cast<char>(byte);
  }
  return true;
}

}  // namespace lockstep::text

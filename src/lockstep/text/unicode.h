// What a character is: letter, number, space, mark; one look in a table gives all of it.
//
//     const Unicode& unicode = Unicode::table();
//     if (unicode.bits(code) & kLetter) ...
//
// The answers are those of the libraries whose ids we must equal (tools/unicode_tables.py), so two of them
// may differ on what a word is: each has its bit.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::text {

// In the order of tools/unicode_tables.py: the lowest five bits.
enum Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo
};
constexpr int kCategories = 29;
constexpr std::string_view kCategoryNames[kCategories] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};

enum CharBits : uint32_t {
  kCategoryMask = 31,
  kSpace = 1u << 5,         // \s
  kOnigWord = 1u << 6,      // \w of Oniguruma
  kRustWord = 1u << 7,      // \w of Rust's regex
  kPunctuation = 1u << 8,   // of BERT
  kNumeric = 1u << 9,       // Rust's char::is_numeric
  kControl = 1u << 10,      // BERT takes it out
  kBertAccent = 1u << 11,   // BERT strips it
  kAccent = 1u << 12,       // StripAccents strips it
  kChinese = 1u << 13,      // BERT puts spaces around it
  kLetter = 1u << 14,       // \p{L}
  kNumber = 1u << 15,       // \p{N}
  kMark = 1u << 16,         // \p{M}
  kSymbol = 1u << 17,       // \p{P} or \p{S}
  kNewline = 1u << 18,      // \r or \n
  kUpper = 1u << 19,        // Lu, Lt, Lm, Lo, M: how o200k begins a word
  kLower = 1u << 20,        // Ll, Lm, Lo, M: and how it goes on
  kHanKana = 1u << 21,      // what DeepSeek keeps apart: U+4E00 to U+9FA5, U+3040 to U+30FF
  kChangesNfc = 1u << 22,   // NFC may change it, or join it to what stands before it
  kChangesNfkc = 1u << 23,  // and NFKC
};

class Unicode {
 public:
  static const Unicode& table();  // made once; never changes

  uint32_t bits(uint32_t code) const { return pages_[size_t{index_[code >> 8]} << 8 | (code & 255)]; }
  const uint32_t* ascii() const { return pages_.data(); }  // of the first 128 characters: no page to look up

 private:
  Unicode();
  void fill_pages(const std::vector<uint32_t>& all);
  uint16_t index_[0x1100];
  std::vector<uint32_t> pages_;  // of 256 characters
};

}  // namespace lockstep::text

#include "lockstep/text/unicode.h"

#include <map>

#include "lockstep/text/unicode_data.h"

namespace lockstep::text {
namespace {

constexpr uint32_t kCodes = 0x110000;

bool is_one_of(uint32_t category, std::initializer_list<Category> list) {
  for (const Category one : list) {
    if (one == category) return true;
  }
  return false;
}

uint32_t bits_of_category(uint32_t category) {
  uint32_t bits = 0;
  const bool mark = is_one_of(category, {kMn, kMc, kMe});
  if (is_one_of(category, {kLu, kLl, kLt, kLm, kLo})) bits |= kLetter;
  if (is_one_of(category, {kNd, kNl, kNo})) bits |= kNumber;
  if (mark) bits |= kMark;
  if (category >= kPc && category <= kSo) bits |= kSymbol;
  if (mark || is_one_of(category, {kLu, kLt, kLm, kLo})) bits |= kUpper;
  if (mark || is_one_of(category, {kLl, kLm, kLo})) bits |= kLower;
  return bits;
}

void mark_changes(std::vector<uint32_t>& all) {
  for (size_t i = 0; i + 1 < kClassRunsSize; i += 2) {
    const uint32_t end = i + 2 < kClassRunsSize ? kClassRuns[i + 2] : kCodes;
    for (uint32_t code = kClassRuns[i]; kClassRuns[i + 1] != 0 && code < end; ++code)
      all[code] |= kChangesNfc | kChangesNfkc;
  }
  for (size_t i = 0; i < kCanonicalSize; i += 2 + kCanonical[i + 1])
    all[kCanonical[i]] |= kChangesNfc | kChangesNfkc;
  for (size_t i = 0; i < kCompatibleSize; i += 2 + kCompatible[i + 1]) all[kCompatible[i]] |= kChangesNfkc;
  for (size_t i = 0; i < kCompositionsSize; i += 3) all[kCompositions[i + 1]] |= kChangesNfc | kChangesNfkc;
  for (size_t i = 0; i < kNewerClassesSize; i += 2) all[kNewerClasses[i]] |= kChangesNfc | kChangesNfkc;
  for (size_t i = 0; i < kNewerCanonicalSize; i += 2 + kNewerCanonical[i + 1])
    all[kNewerCanonical[i]] |= kChangesNfc;
  for (size_t i = 0; i < kNewerCompositionsSize; i += 3) all[kNewerCompositions[i + 1]] |= kChangesNfc;
  for (uint32_t code = 0x1161; code < 0x11C3; ++code)
    all[code] |= kChangesNfc | kChangesNfkc;  // Hangul's vowels
}

}  // namespace

const Unicode& Unicode::table() {
  static const Unicode all;
  return all;
}

Unicode::Unicode() {
  std::vector<uint32_t> all(kCodes);
  for (size_t i = 0; i < kFlagRunsSize; i += 2) {
    const uint32_t end = i + 2 < kFlagRunsSize ? kFlagRuns[i + 2] : kCodes;
    const uint32_t bits = kFlagRuns[i + 1] | bits_of_category(kFlagRuns[i + 1] & kCategoryMask);
    for (uint32_t code = kFlagRuns[i]; code < end; ++code) all[code] = bits;
  }
  all['\r'] |= kNewline;
  all['\n'] |= kNewline;
  for (uint32_t code = 0x4E00; code <= 0x9FA5; ++code) all[code] |= kHanKana;
  for (uint32_t code = 0x3040; code <= 0x30FF; ++code) all[code] |= kHanKana;
  mark_changes(all);
  fill_pages(all);
}

// Pages that are alike are kept once.
void Unicode::fill_pages(const std::vector<uint32_t>& all) {
  std::map<std::vector<uint32_t>, uint16_t> known;
  for (uint32_t page = 0; page < kCodes >> 8; ++page) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(page) * 256;
    std::vector<uint32_t> words(first, first + 256);
    const auto [place, is_new] = known.try_emplace(words, static_cast<uint16_t>(known.size()));
    if (is_new) pages_.insert(pages_.end(), words.begin(), words.end());
    index_[page] = place->second;
  }
}

}  // namespace lockstep::text

// The numbers behind unicode.h, as tools/unicode_tables.py writes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::text {

// Pairs: the first character of a run, and what holds for all of it.
extern const uint32_t kFlagRuns[];  // 5 bits of category, then the flags of unicode.h
extern const size_t kFlagRunsSize;
extern const uint32_t kClassRuns[];  // canonical combining classes
extern const size_t kClassRunsSize;

// A character, a count, and that many characters that take its place.
extern const uint32_t kCanonical[];
extern const size_t kCanonicalSize;
extern const uint32_t kCompatible[];  // where it is not the canonical one
extern const size_t kCompatibleSize;
extern const uint32_t kLowercase[];
extern const size_t kLowercaseSize;

// What Python's unicodedata, a newer Unicode, has otherwise: pairs, and the same forms as above.
extern const uint32_t kNewerClasses[];
extern const size_t kNewerClassesSize;
extern const uint32_t kNewerCanonical[];
extern const size_t kNewerCanonicalSize;
extern const uint32_t kNewerCompositions[];
extern const size_t kNewerCompositionsSize;

extern const uint32_t kCompositions[];  // triples: these two become that one
extern const size_t kCompositionsSize;

}  // namespace lockstep::text

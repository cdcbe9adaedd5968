// Cutting text into pieces by hand: the patterns that most tokenizers use, without an engine for patterns.
//
//     if (const Scan scan = find_scan(pattern)) for (at = begin; at < end; at = next) next = scan(unicode,
//     at, end);
//
// Each scanner matches what its pattern matches, the same alternative first, and pieces follow each other
// without a gap. A test holds each against the pattern itself; real_tokenizers against the owners' libraries.
#pragma once

#include <string_view>

#include "lockstep/text/unicode.h"

namespace lockstep::text {

// The end of the piece that begins at `at`, before `end`. Whole UTF-8.
using Scan = const char* (*)(const Unicode&, const char* at, const char* end);

Scan find_scan(std::string_view pattern);  // null: no scanner for this pattern

// Those that tokenizers name in other ways than by a pattern.
extern const std::string_view kGpt2Pattern;
extern const std::string_view kLlama3Pattern;
extern const std::string_view kQwenPattern;
extern const std::string_view kQwen35Pattern;
extern const std::string_view kCl100kPattern;
extern const std::string_view kO200kPattern;

// DeepSeek's three splits, one after the other, are one scanner.
extern const std::string_view kDeepSeekPatterns[3];
Scan deepseek_scan();

// Whether two are the same, however they write the end of a line.
bool same_pattern(std::string_view a, std::string_view b);

}  // namespace lockstep::text

// Text for people: sizes, durations and counts in units one can say aloud, and the nearest word to a
// misspelt one.
//
//     human_bytes(1610612736)    "1.5 GiB"
//     human_duration(125)        "2 m 05 s"
//     human_count(12'300'000)    "12.3 M"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

std::string human_bytes(double bytes);
std::string human_duration(double seconds);  // "850 us", "12 ms", "3.2 s", "2 m 05 s", "3 h 07 m", "2 d 04 h"
std::string human_count(double count);       // "950", "12.3 k", "12.3 M", "1.5 B", "2 T"

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`; empty if none is near enough to be what was meant.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// Text from outside, safe to print: in double quotes, control characters escaped, cut after `most` bytes.
// The escapes are TOML's and JSON's, so that uncut text reads back.
std::string quoted(std::string_view text, size_t most = 80);

// What divides `whole`: "1, 2, 4, 8", for errors that name a way out. Of many, those nearest to `wanted`.
std::string divisors_near(int64_t whole, int64_t wanted);

std::string join(const std::vector<std::string>& words, std::string_view between);
// "a, b or c".
std::string listed(const std::vector<std::string>& words, std::string_view before_last);
std::string_view trimmed(std::string_view text);  // without white space at both ends
std::vector<std::string> split_lines(std::string_view text);

// Code points of UTF-8 text: its columns on a terminal, for the alphabets used here.
size_t display_width(std::string_view text);
// At most `width` columns, never cutting inside a character.
std::string cut_to_width(std::string_view text, size_t width);
// Lines of at most `width` columns, broken between words. At least one line. A word that is longer than a
// line is cut, or stays whole: paths and commands are copied from terminals.
enum class LongWords : uint8_t { cut, whole };
std::vector<std::string> wrapped(std::string_view text, size_t width, LongWords words = LongWords::cut);
// Every line of `text` wrapped, words whole; what follows a break stands `hang` columns further in than its
// line.
std::string hanging(std::string_view text, size_t width, size_t hang);

}  // namespace lockstep::base

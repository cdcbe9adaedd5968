#include "lockstep/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::base {
namespace {

// One decimal, unless it would be a zero: "1.5", "2".
std::string one_decimal(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

template <size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& units) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const char* sign = value < 0 ? "-" : "";
  value = std::abs(value);
  size_t unit = 0;
  // 1023.97 KiB would be printed as 1024 KiB: compare what is printed.
  while (unit + 1 < N && std::round(value * 10) / 10 >= base) {
    value /= base;
    ++unit;
  }
  const std::string number = unit == 0 ? fmt::format("{}", std::round(value)) : one_decimal(value);
  return *units[unit] ? fmt::format("{}{} {}", sign, number, units[unit]) : sign + number;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

bool is_c1_control(std::string_view text) {  // U+0080 to U+009F: terminals obey some of them
  return text.size() > 1 && text[0] == '\xC2' && is_continuation(text[1]) && text[1] < '\xA0';
}

// Bytes of the character that `text` begins with; 0: none that a terminal should get, be it a control
// character or no UTF-8.
size_t printable_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length || is_c1_control(text)) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length), is_continuation))
    return 0;
  // Too long a form, half of a pair, or beyond the last character.
  const auto second = static_cast<unsigned char>(text[1]);
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return wrong ? 0 : length;
}

}  // namespace

std::string human_bytes(double bytes) {
  return scaled<7>(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
}

std::string human_count(double count) { return scaled<5>(count, 1000, {"", "k", "M", "B", "T"}); }

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{}", seconds);
  if (seconds < 0) return "-" + human_duration(-seconds);
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.95) return one_decimal(seconds) + " s";
  const double whole = std::round(seconds);
  if (whole < 3600) return fmt::format("{:.0f} m {:02.0f} s", std::floor(whole / 60), std::fmod(whole, 60));
  const double minutes = std::round(seconds / 60);
  if (minutes < 1440)
    return fmt::format("{:.0f} h {:02.0f} m", std::floor(minutes / 60), std::fmod(minutes, 60));
  const double hours = std::round(seconds / 3600);
  return fmt::format("{:.0f} d {:02.0f} h", std::floor(hours / 24), std::fmod(hours, 24));
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 100) return "";
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string quoted(std::string_view text, size_t most) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    if (i >= most) return out + "...\"";
    const std::string_view rest = text.substr(i);
    const size_t printable = printable_bytes(rest);
    if (rest[0] == '"' || rest[0] == '\\') out += '\\';
    if (printable > 0) {
      out += rest.substr(0, printable);
    } else if (rest[0] == '\n' || rest[0] == '\r' || rest[0] == '\t') {
      out += rest[0] == '\n' ? "\\n" : rest[0] == '\r' ? "\\r" : "\\t";
    } else if (is_c1_control(rest)) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(rest[1]));
      ++i;
    } else {
      const auto byte = static_cast<unsigned char>(rest[0]);
      out += byte < 0x80 ? fmt::format("\\u{:04X}", byte) : fmt::format("\\x{:02X}", byte);
    }
    i += std::max<size_t>(printable, 1);
  }
  return out + '"';
}

namespace {

std::vector<int64_t> divisors_of(int64_t whole) {
  std::vector<int64_t> low, high;
  for (int64_t n = 1; n <= whole / n; ++n) {
    if (whole % n != 0) continue;
    low.push_back(n);
    if (n != whole / n) high.push_back(whole / n);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

}  // namespace

std::string divisors_near(int64_t whole, int64_t wanted) {
  constexpr size_t kMost = 10;
  std::vector<int64_t> chosen = divisors_of(whole);
  const bool some = chosen.size() > kMost;
  if (some) {  // the nearest by their ratio, and 1, which always works
    const auto far = [&](int64_t n) {
      return std::abs(std::log(static_cast<double>(n) / static_cast<double>(std::max<int64_t>(1, wanted))));
    };
    std::stable_sort(chosen.begin() + 1, chosen.end(), [&](int64_t a, int64_t b) { return far(a) < far(b); });
    chosen.resize(kMost);
    std::sort(chosen.begin(), chosen.end());
  }
  std::vector<std::string> words;
  for (const int64_t n : chosen) words.push_back(std::to_string(n));
  return join(words, ", ") + (some ? " and others" : "");
}

std::string listed(const std::vector<std::string>& words, std::string_view before_last) {
  if (words.size() < 2) return join(words, "");
  const std::vector<std::string> first(words.begin(), words.end() - 1);
  return join(first, ", ") + " " + std::string(before_last) + " " + words.back();
}

std::string join(const std::vector<std::string>& words, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += between;
    out += words[i];
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

std::string cut_to_width(std::string_view text, size_t width) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_continuation(text[i])) continue;
    if (columns++ == width) return std::string(text.substr(0, i));
  }
  return std::string(text);
}

std::vector<std::string> wrapped(std::string_view text, size_t width, LongWords words) {
  width = std::max<size_t>(width, 1);
  std::vector<std::string> lines(1);
  size_t used = 0;  // columns of the last line
  while (!(text = trimmed(text)).empty()) {
    std::string word(text.substr(0, text.find_first_of(" \t\r\n")));
    text.remove_prefix(word.size());
    const size_t columns = display_width(word);
    if (used > 0 && used + 1 + columns > width) lines.emplace_back(), used = 0;
    if (used > 0) lines.back() += ' ', ++used;
    lines.back() += word;
    used += columns;
    while (used > width && words == LongWords::cut) {  // one word longer than a line
      const std::string head = cut_to_width(lines.back(), width);
      std::string tail = lines.back().substr(head.size());
      lines.back() = head;
      used -= width;
      lines.push_back(std::move(tail));
    }
  }
  return lines;
}

std::string hanging(std::string_view text, size_t width, size_t hang) {
  std::vector<std::string> out;
  for (const std::string& line : split_lines(text)) {
    if (display_width(line) <= width) {
      out.push_back(line);
      continue;
    }
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    // Only the breaks are new: columns that were aligned with blanks stay aligned in the first line.
    std::string rest = line;
    size_t before = 0;
    while (display_width(rest) > width) {
      const size_t from = std::min(rest.find_first_not_of(' ', before), rest.size());
      size_t cut = rest.rfind(' ', cut_to_width(rest, width + 1).size() - 1);
      if (cut == std::string::npos || cut <= from) cut = rest.find(' ', from);  // a word longer than a line
      if (cut == std::string::npos) break;
      const size_t next = rest.find_first_not_of(' ', cut);
      if (next == std::string::npos) break;
      out.push_back(rest.substr(0, rest.find_last_not_of(' ', cut) + 1));
      before = indent + hang;
      rest = std::string(before, ' ') + rest.substr(next);
    }
    out.push_back(rest);
  }
  return join(out, "\n");
}

}  // namespace lockstep::base

#include "lockstep/plan/shop/deadline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::plan {

namespace {

constexpr double kSecondsOfHour = 3600;
constexpr const char* kDays[] = {"sunday",   "monday", "tuesday", "wednesday",
                                 "thursday", "friday", "saturday"};

[[noreturn]] void refuse(const std::string& words, const char* why) {
  throw base::ConfigError(109, fmt::format("--by {}: {}", base::quoted(words), why));
}

std::optional<double> span_hours(const std::string& words) {
  if (words.empty()) return std::nullopt;
  const auto number = base::parse_number<double>(words.substr(0, words.size() - 1));
  if (!number) return std::nullopt;
  switch (words.back()) {
    case 'h':
      return *number;
    case 'd':
      return *number * 24;
    case 'w':
      return *number * 24 * 7;
    default:
      return std::nullopt;
  }
}

// The last second of the day that is so many days after today's.
double hours_to_end(std::tm day, int more, int64_t now) {
  day.tm_mday += more;
  day.tm_hour = 24, day.tm_min = day.tm_sec = 0;
  day.tm_isdst = -1;
  return static_cast<double>(std::mktime(&day) - now) / kSecondsOfHour;
}

std::optional<int> weekday(const std::string& word) {
  for (int k = 0; k < 7; ++k) {
    const std::string name = kDays[k];
    if (word.size() >= 3 && name.starts_with(word)) return k;
  }
  return std::nullopt;
}

}  // namespace

double hours_until(const std::string& words, int64_t now) {
  std::string word(base::trimmed(words));
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (const auto span = span_hours(word)) {
    if (!(*span > 0 && *span <= 1e6)) refuse(words, "must be above 0");
    return *span;
  }
  const auto seconds = static_cast<std::time_t>(now);
  std::tm today{};
  localtime_r(&seconds, &today);
  if (word == "today") return hours_to_end(today, 0, now);
  if (word == "tomorrow") return hours_to_end(today, 1, now);
  if (const auto day = weekday(word)) return hours_to_end(today, (*day - today.tm_wday + 7) % 7, now);
  int year = 0, month = 0, day = 0, read = 0;
  if (std::sscanf(word.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &read) == 3 &&
      static_cast<size_t>(read) == word.size() && month >= 1 && month <= 12 && day >= 1 && day <= 31) {
    std::tm date{};
    date.tm_year = year - 1900, date.tm_mon = month - 1, date.tm_mday = day;
    const double hours = hours_to_end(date, 0, now);
    if (hours <= 0) refuse(words, "that day is over");
    return hours;
  }
  refuse(words, "expected a day (friday, tomorrow, 2026-12-01) or a span (36h, 3d, 2w)");
}

}  // namespace lockstep::plan

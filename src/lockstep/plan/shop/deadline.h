// "--by friday": until when, in words people use.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::plan {

// Hours from `now` (seconds since 1970) to the end of that day, in local time: friday, tomorrow, 2026-12-01;
// or a span: 36h, 3d, 2w. ConfigError 109 for other words and for days that are over.
double hours_until(const std::string& words, int64_t now);

}  // namespace lockstep::plan

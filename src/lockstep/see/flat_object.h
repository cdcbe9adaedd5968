// One line of metrics.jsonl, read in a microsecond: an object of plain numbers and texts, as every run
// writes.
//
// A run of a million steps has a million of them, and building each as a JSON value takes several times as
// long. Whatever is not that plain (nested, escaped, unusual) is left to the JSON parser.
#pragma once

#include <optional>
#include <string_view>

#include "lockstep/see/metric_table.h"

namespace lockstep::see {

// None: it is not plain, which says nothing about whether it is right.
std::optional<LogRow> read_flat_row(std::string_view line);

}  // namespace lockstep::see

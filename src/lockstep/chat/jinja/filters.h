// The two tables of filters: those of one value (filters.cc, which also finds a filter by its name) and those
// of many items (item_filters.cc).
#pragma once

#include <span>
#include <string_view>

#include "lockstep/chat/jinja/run.h"

namespace lockstep::chat::jinja {

struct FilterRow {
  std::string_view name;
  Value (*filter)(Run& run, const Value& input, const Arguments& arguments);
};

std::span<const FilterRow> item_filters();

}  // namespace lockstep::chat::jinja

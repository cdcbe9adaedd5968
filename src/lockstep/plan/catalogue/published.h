// Training figures that others have published (catalogue/published.toml), to hold forecasts against.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/catalogue/place.h"

namespace lockstep::plan {

struct PublishedRow {
  std::string title;
  Place place;
  std::vector<std::string> keys;  // key=value of the recipe
  double tokens_per_second = 0;   // of one device
  Source source;
};
struct LeftOut {
  std::string title, why;
};
struct Published {
  std::vector<PublishedRow> rows;
  std::vector<LeftOut> left_out;
};
Published read_published(std::string_view text, const std::string& name);  // ConfigError 570
Published published();                                                     // the built-in ones

}  // namespace lockstep::plan

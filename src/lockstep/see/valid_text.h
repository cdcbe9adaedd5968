// Text with U+FFFD in place of bytes that are no UTF-8, as JSON, a page or Prometheus can have it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::see {

inline std::string valid_text(const std::string& text) {
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

}  // namespace lockstep::see

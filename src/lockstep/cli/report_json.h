// A report as JSON, on standard output. Bytes that are no UTF-8, which names of folders may have, become
// U+FFFD.
#pragma once

#include "lockstep/cli/print.h"

namespace lockstep::cli {

template <class Json>
void report_json(const Json& json, int indent = -1) {
  print("{}\n", json.dump(indent, ' ', false, Json::error_handler_t::replace));
}

}  // namespace lockstep::cli

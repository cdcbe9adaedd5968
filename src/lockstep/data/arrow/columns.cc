#include "lockstep/data/arrow/columns.h"

#include <fmt/format.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/device/libraries.h"

namespace lockstep::data {
namespace {

using Open = decltype(&lockstep_open_column);

std::string plugin() { return device::path_beside("liblockstep_arrow.so"); }

Open load() {
  const std::string path = plugin();
  return reinterpret_cast<Open>(
      device::find_in_library(device::load_library(path), path, "lockstep_open_column"));
}

}  // namespace

bool has_arrow() {
  std::error_code ignored;
  return std::filesystem::exists(plugin(), ignored);
}

std::unique_ptr<Column> open_column(const ColumnQuery& query) {
  if (!has_arrow()) {
    throw base::ConfigError(
        277, fmt::format("{} is a Parquet or Arrow file, and this build was made without Arrow, so there is "
                         "no {}; run ./lockstep setup with a network, or convert the file to JSONL",
                         query.file, plugin()));
  }
  static const Open open = load();  // tried again when it threw
  return std::unique_ptr<Column>(open(query));
}

}  // namespace lockstep::data

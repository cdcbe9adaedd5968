#include "lockstep/store/store.h"

#include <fmt/format.h>

#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/signals_blocked.h"
#include "lockstep/device/libraries.h"

namespace lockstep::store {
namespace {

using Open = decltype(&lockstep_open_store);

Open load() {
  const std::string path = device::path_beside("liblockstep_stores.so");
  return reinterpret_cast<Open>(
      device::find_in_library(device::load_library(path), path, "lockstep_open_store"));
}

std::unique_ptr<Store> open_with_arrow(const Uri& uri) {
  const std::string plugin = device::path_beside("liblockstep_stores.so");
  std::error_code ignored;
  if (!std::filesystem::exists(plugin, ignored)) {
    throw base::ConfigError(
        287, fmt::format("{} is in an object store, and this build was made without Arrow, so there is no "
                         "{}; run ./lockstep setup with a network, or copy the files to a disk",
                         uri.shown(), plugin));
  }
  const base::SignalsBlocked for_its_threads;
  static const Open open = load();  // tried again when it threw
  return std::unique_ptr<Store>(open(uri));
}

}  // namespace

Patience usual_patience() {
  Patience patience;
  const auto said = base::environment("LOCKSTEP_OBJECT_PATIENCE");
  if (!said) return patience;
  const auto seconds = base::parse_number<double>(*said);
  if (!seconds || *seconds < 0 || *seconds > 1e6)
    throw base::ConfigError(293, "LOCKSTEP_OBJECT_PATIENCE is not a number of seconds from 0 to 1000000");
  patience.seconds = *seconds;
  return patience;
}

std::unique_ptr<Store> open_store(const Uri& uri) {
  const Patience patience = usual_patience();
  try {
    return with_patience(uri.scheme == "file" ? open_folder_store() : open_with_arrow(uri), uri, patience);
  } catch (const Fault& fault) {
    throw base::ConfigError(289, fmt::format("{} cannot be opened: {}", uri.shown(), fault.what()));
  }
}

}  // namespace lockstep::store

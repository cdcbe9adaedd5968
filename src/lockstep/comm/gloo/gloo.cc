#include "lockstep/comm/gloo/gloo.h"

#include "lockstep/comm/engines.h"
#include "lockstep/device/libraries.h"

namespace lockstep::comm {
namespace {

using Make = decltype(&lockstep_gloo_group);

Make load() {
  const std::string path = device::path_beside("liblockstep_torch.so");
  return reinterpret_cast<Make>(
      device::find_in_library(device::load_library(path), path, "lockstep_gloo_group"));
}

std::unique_ptr<Group> make_gloo_group(const GroupOptions& options, Store& store, SharedArena*) {
  static const Make make = load();  // tried again when it threw
  return std::unique_ptr<Group>(make(options, store));
}

}  // namespace

const Engine& gloo_engine() {
  static const Engine row{.name = "gloo",
                          .describe = "CPU ranks anywhere, through c10d",
                          .automatic = true,
                          .make = make_gloo_group};
  return row;
}

}  // namespace lockstep::comm

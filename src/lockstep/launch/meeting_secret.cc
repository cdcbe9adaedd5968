#include <fmt/format.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/launch/meeting.h"

namespace lockstep::launch {

comm::Secret meeting_secret(const Options& options, bool leads, const Say& say) {
  if (!options.secret_file.empty()) return comm::Secret::from_file(options.secret_file);
  if (const auto text = process_variable("LOCKSTEP_SECRET")) return comm::Secret::from_text(*text);
  const std::string home = process_variable("HOME").value_or("");
  const std::string config = process_variable("XDG_CONFIG_HOME").value_or(home + "/.config");
  const std::string path = config + "/lockstep/secret";
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return comm::Secret::from_file(path);
  if (!leads) {
    throw base::ConfigError(
        537, fmt::format("this node does not know the run's secret; set LOCKSTEP_SECRET to what node 0 "
                         "prints, or give --rdzv-secret-file, or put it in {} (mode 0600)",
                         path));
  }
  const comm::Secret secret = comm::Secret::random();
  say(fmt::format("on the other nodes, first: export LOCKSTEP_SECRET={}", secret.to_text()));
  return secret;
}

}  // namespace lockstep::launch

// `lockstep metrics RUN... --listen PORT`.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// Serves /metrics until it is asked to end; 0.
int listen_for_prometheus(const std::vector<std::string>& folders, const std::string& host, int port);

}  // namespace lockstep::cli

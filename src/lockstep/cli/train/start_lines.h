// The lines before the first step: model, data, device, batch and what exactness allows, ranks, memory.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/run/session/session.h"

namespace lockstep::cli {

// How the ranks of a session share the work and what carries their bytes; empty for one rank.
std::string ranks_line(const run::Session& session);

// `ranks`: as above, or what is known of ranks that were not started. Labels are eight columns wide.
std::string start_lines(const run::Plan& plan, const std::string& ranks, const std::string& folder);

// A table of the sources of data.mix, set in like the rest of a start line; empty for data of one source.
std::string sources_text(const std::vector<data::SourceCount>& sources);

}  // namespace lockstep::cli

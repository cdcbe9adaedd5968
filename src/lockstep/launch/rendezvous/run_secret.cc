#include <algorithm>

#include "lockstep/launch/rendezvous/run_store.h"
#include "lockstep/launch/rendezvous/secret_source.h"

namespace lockstep::launch {

namespace {

constexpr Duration kPatience{15000};  // for the file that node 0 makes in a shared home

}  // namespace

comm::Secret run_secret(const Options& options, bool leads, const Say& say) {
  const FoundSecret found = find_secret(secret_places(this_environment(), options.secret_file), leads,
                                        std::min(kPatience, options.join_timeout));
  if (!found.notice.empty()) say(found.notice);
  return found.secret;
}

}  // namespace lockstep::launch

// What a store's message means: Arrow hands on what the server or its client library said as text.
#pragma once

#include <string>

#include "lockstep/store/store.h"

namespace lockstep::store {

// What is not known to be final is taken for passing: trying again costs a while, giving up costs a run.
Fault::Kind kind_of_fault(const std::string& message);

// The message with signatures, tokens and keys that a server echoed cut out, and no longer than a paragraph.
std::string without_secrets(const std::string& message);

}  // namespace lockstep::store

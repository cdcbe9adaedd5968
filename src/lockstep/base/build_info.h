// Which source this program was built from, for run records and bug reports.
#pragma once

namespace lockstep::base {

const char* source_commit();  // git's hash, or "unknown" outside a checkout
bool source_modified();       // the checkout had changes that were not committed

}  // namespace lockstep::base

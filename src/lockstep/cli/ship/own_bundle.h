// A bundle of the program that is running.
#pragma once

#include "lockstep/ship/bundle.h"

namespace lockstep::cli {

ship::BundlePlan own_bundle(bool cuda);  // ConfigError 752

}  // namespace lockstep::cli

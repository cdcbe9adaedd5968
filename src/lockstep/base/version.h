// The version of this build. The top CMakeLists.txt says the same (error_catalogue_test checks it).
#pragma once

namespace lockstep::base {

constexpr const char* kVersion = "0.1.0";

}  // namespace lockstep::base

// Libraries behind a device that its numbers rest on, for the numerics record.
#pragma once

#include <string>

namespace lockstep::device {

// What multiplies matrices on CUDA: "cublasLt 13.1.0". Empty before the plugin is loaded.
std::string product_library();

}  // namespace lockstep::device

// Element types by the names that safetensors gives them.
#pragma once

#include <optional>
#include <string_view>

#include "lockstep/device/tensor.h"

namespace lockstep::checkpoint {

std::string_view safetensors_name(device::DType type);                         // "BF16"
std::optional<device::DType> type_of_safetensors_name(std::string_view name);  // none: not a type we know

}  // namespace lockstep::checkpoint

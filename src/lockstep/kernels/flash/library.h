// liblockstep_flash.so, opened at run time: without it attention goes through cuDNN or our own kernels.
//
// It lies beside the plugin, where set-up compiled it for this machine. It is nobody's to ship: the
// compiler's licence allows its use, not its distribution (docs/dependencies.md).
#pragma once

#include <string>

#include "lockstep/kernels/flash/flash_abi.h"

namespace lockstep::kernels::cuda {

struct FlashState {
  const LockstepFlashTable* table = nullptr;
  std::string why_not;  // "liblockstep_flash.so: cannot open shared object file"
};
const FlashState& flash_state();

}  // namespace lockstep::kernels::cuda

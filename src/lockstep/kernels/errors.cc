// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::kernels {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {405,
       "Unsupported processor",
       {"The CPU kernels need AVX2 (x86-64-v3)."},
       {"Use a newer machine, or a GPU."}},
      {413,
       "Matrix product rejected by cuBLASLt",
       {"No algorithm supports this shape and type without splitting k."},
       {"Please report it with the shape in the message."}},
      {414, "Attention heads too wide for CUDA", {"Heads are wider than 256."}, {"Raise model.heads."}},
      {433,
       "cuDNN could not run attention",
       {"The driver or the GPU failed.", "cuDNN's files are damaged or from different versions."},
       {"Update the NVIDIA driver, install cuDNN again with `lockstep setup`.",
        "Set LOCKSTEP_ATTENTION=own to use kernels that do not need cuDNN."}},
      {434,
       "FlashAttention failed",
       {"The driver or the GPU failed.", "liblockstep_flash.so is damaged, or was compiled on another machine."},
       {"Compile it again with `lockstep setup`, or update the NVIDIA driver.",
        "Set LOCKSTEP_ATTENTION=cudnn to run without it."}},
  };
}

}  // namespace lockstep::kernels

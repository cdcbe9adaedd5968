// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::kernels {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {405,
       "A processor that is too old",
       {"The CPU kernels need AVX2 (x86-64-v3)."},
       {"Use a newer machine, or a GPU."}},
      {413,
       "A matrix product that cuBLASLt refused",
       {"No algorithm fits this shape and type without splitting the sum."},
       {"Report it with the shape in the message."}},
      {414,
       "Attention heads that are too wide for CUDA",
       {"Heads have more than 256 elements."},
       {"Raise model.heads."}},
      {433,
       "cuDNN could not run attention",
       {"The driver or the GPU failed.", "cuDNN's files are of different versions, or damaged."},
       {"Update the NVIDIA driver, install cuDNN again with `lockstep setup`.",
        "LOCKSTEP_ATTENTION=own takes the kernels that need no cuDNN."}},
      {434,
       "FlashAttention's kernels could not run",
       {"The driver or the GPU failed.", "liblockstep_flash.so is damaged, or was compiled elsewhere."},
       {"Compile it again with `lockstep setup`, update the NVIDIA driver.",
        "LOCKSTEP_ATTENTION=cudnn does without it."}},
  };
}

}  // namespace lockstep::kernels

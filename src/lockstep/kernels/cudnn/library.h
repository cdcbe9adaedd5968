// cuDNN, opened at run time: a machine without it trains with our own attention kernels.
//
// It is looked for beside LibTorch (nvidia/cudnn/lib of the wheels), then on the library path, once. The
// frontend's headers call cuDNN by its plain C names; library.cc defines those few and passes them on.
#pragma once

#include <string>

namespace lockstep::kernels::cuda {

struct CudnnState {
  bool here = false;
  std::string version;  // "9.19.0"
  std::string why_not;  // "libcudnn.so.9: cannot open shared object file"
};
const CudnnState& cudnn_state();

}  // namespace lockstep::kernels::cuda

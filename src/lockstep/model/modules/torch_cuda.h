// LibTorch's CUDA half, for programs that bring modules of their own.
#pragma once

namespace lockstep::model {

// Before such a program builds a model for a GPU: loads the half, if the program links LibTorch at all
// (lockstep::torch). Later would be too late: LibTorch looks for it once. ConfigError 174 when it cannot be.
void load_torch_cuda_where_linked();

}  // namespace lockstep::model

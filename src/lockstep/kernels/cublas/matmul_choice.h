// Which of cuBLASLt's candidates is fastest for a product, among those that give the first one's bits.
#pragma once

#include <vector>

#include "lockstep/kernels/cublas/matmul_plan.h"

namespace lockstep::kernels::cuda {

// An index into `candidates`. Remembered choices are taken without measuring; the first is taken where
// measuring is not worth it or not possible: small products, sums onto C, a stream that is being captured.
size_t choose(cublasLtHandle_t handle, const MatmulPlan& plan, const std::vector<MatmulCandidate>& candidates,
              const MatmulKey& key, const Gemm& op, const Launch& launch, MatmulMemory& memory);

}  // namespace lockstep::kernels::cuda

#include "lockstep/kernels/fp8/fp8.h"

#include "lockstep/base/error.h"

namespace lockstep::kernels {

void require_valid(const Fp8Gemm& op) {
  LS_ASSERT(op.n % kFp8Multiple == 0 && op.k % kFp8Multiple == 0 && op.k > 0);
  LS_ASSERT(!op.bias || (op.beta == 0 && op.out_type == device::DType::bf16));
  for (const Fp8Operand* operand : {&op.a, &op.b}) {
    LS_ASSERT(reinterpret_cast<uintptr_t>(operand->scales) % kFp8ScaleAlignment == 0,
              "scales lie where cuBLASLt would refuse them");
  }
}

}  // namespace lockstep::kernels

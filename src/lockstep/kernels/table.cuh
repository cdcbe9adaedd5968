// The CUDA launchers by name, as table.h lists them; plugin.cu puts them into the plugin's table.
#pragma once

#include "lockstep/kernels/table.h"

namespace lockstep::kernels::cuda {

#define ROW(name, Arguments) void name(const Arguments& op, const Launch& launch);
LOCKSTEP_KERNELS(ROW)
#undef ROW

int64_t gemm_workspace(const Gemm& op);
int64_t fp8_gemm_workspace(const Fp8Gemm& op);
int64_t attention_workspace(const AttentionShape& shape);
int64_t attention_part_workspace(const AttentionPartShape& shape);
int64_t embedding_workspace(int64_t tokens, int64_t width);
std::string attention_engine(const AttentionShape& shape);
std::string attention_part_engine(const AttentionPartShape& shape);

}  // namespace lockstep::kernels::cuda

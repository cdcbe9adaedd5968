// Every row of the table, declared once in the namespace of each level; table_cpu.cc collects them.
#pragma once

#include "lockstep/kernels/numbers_cpu.h"
#include "lockstep/kernels/parallel_cpu.h"
#include "lockstep/kernels/table.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

#define ROW(name, Arguments) void name(const Arguments& op, const Launch& launch);
LOCKSTEP_KERNELS(ROW)
#undef ROW

int64_t gemm_workspace(const Gemm& op);
int64_t fp8_gemm_workspace(const Fp8Gemm& op);
int64_t attention_workspace(const AttentionShape& shape);
int64_t attention_part_workspace(const AttentionPartShape& shape);

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL

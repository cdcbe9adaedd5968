#include "lockstep/kernels/levels.h"
#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

int64_t embedding_workspace(int64_t, int64_t) { return 0; }
std::string attention_engine(const AttentionShape&) { return "own"; }
std::string attention_part_engine(const AttentionPartShape&) { return "own"; }

constexpr Kernels kTable = {
#define ROW(name, Arguments) name,
    LOCKSTEP_KERNELS(ROW)
#undef ROW
        gemm_workspace,
    fp8_gemm_workspace,
    attention_workspace,
    attention_part_workspace,
    embedding_workspace,
    false,  // a product may begin with C
    attention_engine,
    attention_part_engine};

}  // namespace

const Kernels& table() { return kTable; }

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL

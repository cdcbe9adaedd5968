#include "lockstep/kernels/absent.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::kernels {
namespace {

struct Seen {
  int64_t samples, heads, kv_heads, seq_len, head_dim;
  double mib;  // of the one that is chosen there
};

// What both asked for on an H200 (docs/measurements.md).
constexpr Seen kSeen[] = {
    {32, 12, 12, 1024, 64, 99},  {8, 32, 8, 2048, 64, 196},   {6, 24, 4, 4096, 64, 196},
    {1, 32, 8, 16384, 64, 196},  {1, 32, 8, 32768, 64, 392},  {4, 24, 8, 4096, 128, 323},
    {2, 32, 8, 8192, 128, 388},  {1, 32, 8, 32768, 128, 776}, {64, 12, 12, 512, 64, 99},
    {16, 32, 8, 1024, 64, 196},  {32, 32, 8, 512, 128, 770},  {16, 32, 8, 1024, 128, 1282},
    {8, 32, 8, 2048, 128, 388},  {8, 16, 16, 2048, 128, 130}, {4, 32, 32, 2048, 96, 98},
    {2, 16, 8, 4096, 256, 1153}, {2, 40, 8, 4096, 128, 227},
};

TEST(AbsentKernels, AskForWhatRealOnesWereSeenToAskFor) {
  for (const Seen& s : kSeen) {
    const double mib = static_cast<double>(absent_cuda_kernels().attention_workspace(
                           {device::DType::bf16, s.samples, s.seq_len, s.heads, s.kv_heads, s.head_dim})) /
                       (1 << 20);
    EXPECT_NEAR(mib / s.mib, 1, 0.02)
        << fmt::format("{}x{}({})x{}x{}: {} MiB", s.samples, s.heads, s.kv_heads, s.seq_len, s.head_dim, mib);
  }
}

TEST(AbsentKernels, AnswerEveryQuestionOfSize) {
  const Kernels& table = absent_cuda_kernels();
  EXPECT_GT(table.gemm_workspace({}), 0);
  EXPECT_GT(table.fp8_gemm_workspace({}), 0);
  EXPECT_GT(table.embedding_workspace(1024, 64), 0);
  const AttentionShape whole{device::DType::bf16, 1, 1024, 4, 4, 64};
  EXPECT_GT(table.attention_part_workspace(only_part(whole)), table.attention_workspace(whole));
  EXPECT_EQ(table.gemm, nullptr);
}

}  // namespace
}  // namespace lockstep::kernels

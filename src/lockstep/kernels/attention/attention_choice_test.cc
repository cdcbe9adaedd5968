#include "lockstep/kernels/attention/attention_choice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::kernels {
namespace {

struct Measured {
  int64_t samples, heads, kv_heads, seq_len, head_dim;
  double cudnn_forward, flash_forward, cudnn_backward, flash_backward;  // ms
};

// One H200, one run, bf16, medians of 20: cuDNN 9.19.0, FlashAttention 4.0.0b36.
constexpr Measured kMeasured[] = {
    {32, 12, 12, 1024, 64, 0.1651, 0.2014, 0.5799, 0.4291},
    {8, 32, 8, 2048, 64, 0.3607, 0.3386, 1.3636, 1.0080},
    {6, 24, 4, 4096, 64, 0.7168, 0.6281, 3.1085, 1.7709},
    {1, 32, 8, 32768, 64, 9.7457, 8.0738, 39.8662, 20.9598},
    {4, 24, 8, 4096, 128, 0.6900, 0.6343, 2.8166, 2.2333},
    {2, 32, 8, 8192, 128, 1.7414, 1.5380, 7.5388, 5.3324},
    {1, 32, 8, 32768, 128, 14.5332, 13.2920, 50.9896, 38.7936},
    {64, 12, 12, 512, 64, 0.1084, 0.1465, 0.3849, 0.3411},
    {16, 32, 8, 1024, 64, 0.2190, 0.2300, 0.8033, 0.7367},
    {16, 12, 12, 2048, 64, 0.2753, 0.2702, 1.0451, 0.6276},
    {8, 12, 12, 4096, 64, 0.4911, 0.4428, 2.0727, 1.0531},
    {32, 32, 8, 512, 128, 0.2014, 0.2424, 0.7559, 1.0184},
    {16, 32, 8, 1024, 128, 0.2921, 0.3225, 1.0783, 1.2632},
    {8, 32, 8, 2048, 128, 0.4997, 0.4939, 1.8814, 1.7804},
    {8, 16, 16, 2048, 128, 0.2702, 0.2518, 0.8906, 0.8019},
    {1, 32, 8, 16384, 64, 2.3375, 1.8930, 9.8572, 5.3491},
    {4, 32, 32, 2048, 96, 0.2627, 0.2349, 0.8812, 0.7453},
    {2, 16, 8, 4096, 256, 0.4630, 0.3786, 2.3405, 2.7622},
    {4, 14, 2, 4096, 64, 0.3037, 0.2486, 1.1732, 0.7254},
    {2, 40, 8, 4096, 128, 0.5797, 0.5339, 2.4155, 1.8014},
};

TEST(AttentionChoice, TakesTheFasterOneOfEveryShapeThatWasMeasured) {
  for (const Measured& m : kMeasured) {
    SCOPED_TRACE(fmt::format("{}x{}({})x{}x{}", m.samples, m.heads, m.kv_heads, m.seq_len, m.head_dim));
    const AttentionPartShape shape =
        only_part({device::DType::bf16, m.samples, m.seq_len, m.heads, m.kv_heads, m.head_dim});
    EXPECT_EQ(flash_forward_is_faster(shape), m.flash_forward < m.cudnn_forward);
    EXPECT_EQ(flash_backward_is_faster(shape), m.flash_backward < m.cudnn_backward);
  }
}

}  // namespace
}  // namespace lockstep::kernels

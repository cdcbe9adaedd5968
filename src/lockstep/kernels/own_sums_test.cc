// Kernels::adds_own_sums: what is added to a gradient is the kernel's own sum, formed before it is added.
#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class OwnSumsTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped() && !kernels().adds_own_sums) GTEST_SKIP() << "not promised here";
  }

  // `add` runs the kernel; false: it writes its sum, true: it adds it to what is there.
  void check(int64_t count, const std::function<void(float* gradient, bool accumulate)>& add) {
    const Values before = rounded(random_values(count, 77), DType::f32);
    const Memory own = garbage(count, DType::f32), sum = upload(before, DType::f32);
    add(own.as<float>(), false);
    add(sum.as<float>(), true);
    device().synchronize(nullptr);
    const Values alone = download(own), together = download(sum);
    for (size_t i = 0; i < alone.size(); ++i) {
      const float expected = static_cast<float>(before[i]) + static_cast<float>(alone[i]);
      ASSERT_EQ(static_cast<float>(together[i]), expected) << "element " << i << " of " << count;
    }
  }
};

// Gradients of weights: small results of long sums are cut along k, large ones are not.
TEST_P(OwnSumsTest, Products) {
  struct Size {
    int64_t m, n, k;
  };
  const Size sizes[] = {{64, 64, 16384},  {768, 768, 8192}, {768, 2304, 4096}, {2048, 512, 1024},
                        {200, 136, 4096}, {131, 257, 1000}, {1, 7, 33},        {1536, 1536, 6144}};
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    for (const Size& s : sizes) {
      SCOPED_TRACE(fmt::format("{} {} x {} x {}", name_of(type), s.m, s.n, s.k));
      const Memory a = upload(random_values(s.k * s.m, 1), type),
                   b = upload(random_values(s.k * s.n, 2), type);
      check(s.m * s.n, [&](float* gradient, bool accumulate) {
        const Gemm op{.m = s.m,
                      .n = s.n,
                      .k = s.k,
                      .in_type = type,
                      .a = a.data(),
                      .b = b.data(),
                      .c = gradient,
                      .trans_a = true,
                      .beta = accumulate ? 1.0f : 0.0f};
        kernels().gemm(op, launch(kernels().gemm_workspace(op)));
      });
    }
  }
}

TEST_P(OwnSumsTest, ProductsInFp8) {
  if (!device().properties().fp8) GTEST_SKIP() << "this GPU does not multiply fp8";
  const bool fine = device().properties().instruction_set == "sm_90";
  constexpr int64_t kRows = 4096, kOut = 272, kIn = 144;
  for (const Fp8Scaling scaling : {Fp8Scaling::tensor, Fp8Scaling::row, Fp8Scaling::block}) {
    if (!fine && scaling != Fp8Scaling::tensor) continue;
    for (const bool fast : {false, true}) {
      SCOPED_TRACE(fmt::format("scaling {} fast {}", static_cast<int>(scaling), fast));
      const auto cast = [&](int64_t rows, uint32_t seed, const Memory& to, const Memory& scales) {
        const Memory from = upload(random_values(rows * kRows, seed), DType::bf16);
        const Memory amax = garbage(std::max<int64_t>(1, fp8_amax_count(scaling, rows, kRows)), DType::f32);
        kernels().fp8_amax({scaling, rows, kRows, from.data(), amax.as<float>()}, launch());
        kernels().fp8_cast({.scaling = scaling,
                            .rows = rows,
                            .columns = kRows,
                            .x = from.data(),
                            .amax = amax.as<float>(),
                            .straight = {to.data(), scales.as<float>()}},
                           launch());
        device().synchronize(nullptr);
      };
      const Memory dy = garbage(kOut * kRows, DType::u8), x = garbage(kIn * kRows, DType::u8);
      const Memory dy_scales = garbage(fp8_scale_count(scaling, kOut, kRows), DType::f32),
                   x_scales = garbage(fp8_scale_count(scaling, kIn, kRows), DType::f32);
      cast(kOut, 1, dy, dy_scales);
      cast(kIn, 2, x, x_scales);
      check(kOut * kIn, [&](float* gradient, bool accumulate) {
        Fp8Gemm op{.m = kOut, .n = kIn, .k = kRows, .out_type = DType::f32, .fast_sum = fast};
        op.a = {Fp8::e4m3, scaling, dy.data(), dy_scales.as<float>()};
        op.b = {Fp8::e4m3, scaling, x.data(), x_scales.as<float>()};
        op.c = gradient;
        op.beta = accumulate ? 1.0f : 0.0f;
        kernels().fp8_gemm(op, launch(kernels().fp8_gemm_workspace(op)));
      });
    }
  }
}

TEST_P(OwnSumsTest, BiasesAndNorms) {
  for (const int64_t width : {1, 31, 256, 2048}) {
    for (const int64_t rows : {1, 17, 4096}) {
      SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
      const Memory dy = upload(random_values(rows * width, 3), DType::bf16);
      check(width, [&](float* gradient, bool accumulate) {
        kernels().bias_backward({DType::bf16, rows, width, dy.data(), gradient, accumulate},
                                launch(bias_backward_workspace(rows, width)));
      });
      const int64_t parts = row_parts(rows);
      const Memory partial = upload(random_values(parts * width, 4), DType::f32);
      check(width, [&](float* gradient, bool accumulate) {
        kernels().norm_weight_backward({.parts = parts,
                                        .width = width,
                                        .partial = partial.as<float>(),
                                        .gradient = gradient,
                                        .accumulate = accumulate},
                                       launch());
      });
    }
  }
}

// With tokens that are rare and some that fill many pieces, and with a scale that does not divide evenly.
TEST_P(OwnSumsTest, Embeddings) {
  constexpr int64_t kVocab = 40, kSamples = 4, kLength = 128, kRows = kSamples * kLength;
  for (const int64_t width : {6, 64}) {
    for (const float scale : {1.0f, 1.7f}) {
      SCOPED_TRACE(fmt::format("width {} scale {}", width, scale));
      std::vector<int32_t> tokens;
      for (int32_t i = 0; i < kRows; ++i) tokens.push_back(i % 3 == 0 ? i % kVocab : 7);
      const Memory tokens_m = upload_ints(tokens),
                   dout = upload(random_values(kRows * width, 5), DType::bf16);
      const int64_t bytes = kernels().embedding_workspace(kRows, width);
      const auto op = [&](bool accumulate) {
        return EmbeddingBackward{.type = DType::bf16,
                                 .samples = kSamples,
                                 .seq_len = kLength,
                                 .width = width,
                                 .vocab = kVocab,
                                 .tokens = tokens_m.as<int32_t>(),
                                 .dout = dout.data(),
                                 .position_rows = kLength,
                                 .accumulate = accumulate,
                                 .scale = scale};
      };
      check(kVocab * width, [&](float* gradient, bool accumulate) {
        EmbeddingBackward table = op(accumulate);
        table.dtable = gradient;
        kernels().embedding_backward(table, launch(bytes));
      });
      check(kLength * width, [&](float* gradient, bool accumulate) {
        EmbeddingBackward positions = op(accumulate);
        positions.dpositions = gradient;
        kernels().embedding_backward(positions, launch(bytes));
      });
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(OwnSumsTest);

}  // namespace
}  // namespace lockstep::kernels::testing

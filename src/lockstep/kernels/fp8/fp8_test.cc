#include "lockstep/kernels/fp8/fp8.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

constexpr Fp8 kFormats[] = {Fp8::e4m3, Fp8::e5m2};
constexpr Fp8Scaling kScalings[] = {Fp8Scaling::tensor, Fp8Scaling::row, Fp8Scaling::block,
                                    Fp8Scaling::square};

// What a byte stands for, from the formats' definition.
double decoded(Fp8 format, uint8_t byte) {
  const int fraction = format == Fp8::e4m3 ? 3 : 2, bias = format == Fp8::e4m3 ? 7 : 15;
  const int exponent = (byte & 0x7F) >> fraction, rest = byte & ((1 << fraction) - 1);
  const double sign = (byte & 0x80) != 0 ? -1 : 1;
  const bool nan = format == Fp8::e4m3 ? (byte & 0x7F) == 0x7F : exponent == 31;
  if (nan) return NAN;
  return sign *
         std::ldexp(rest + (exponent > 0 ? 1 << fraction : 0), std::max(exponent, 1) - bias - fraction);
}

// The nearest number of the format; of two that are equally near, the one whose byte is even.
double nearest(Fp8 format, double value) {
  double best = 0;
  for (int byte = 0; byte < 0x7F; ++byte) {
    const double candidate = decoded(format, static_cast<uint8_t>(byte));
    if (std::isnan(candidate)) continue;
    const double now = std::abs(std::abs(value) - candidate), before = std::abs(std::abs(value) - best);
    if (now < before || (now == before && byte % 2 == 0)) best = candidate;
  }
  return std::copysign(best, value);
}

double largest_of(Fp8 format) { return format == Fp8::e4m3 ? 448 : 57344; }

struct Matrix {
  int64_t rows, columns;
  Values values;  // as bf16 has them
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
};

// Ordinary values, with some far larger and far smaller: rows and blocks then need scales of their own.
Matrix random_matrix(int64_t rows, int64_t columns, uint32_t seed) {
  Matrix x{rows, columns, random_values(rows * columns, seed)};
  for (size_t i = 0; i < x.values.size(); ++i) {
    if (i % 37 == 0) x.values[i] *= 1e-6;
    if (i % 911 == 0) x.values[i] *= 300;
    if (i % 53 == 0) x.values[i] = 0;
  }
  x.values = rounded(std::move(x.values), DType::bf16);
  return x;
}

// The scale that `row`, `column` of a copy of x should have; a transposed copy is a straight one of x^T.
double scale_of(const Matrix& x, Fp8 format, Fp8Scaling scaling, int64_t row, int64_t column) {
  int64_t r0 = 0, r1 = x.rows, c0 = 0, c1 = x.columns;
  if (scaling == Fp8Scaling::row || scaling == Fp8Scaling::block) r0 = row, r1 = row + 1;
  if (scaling == Fp8Scaling::square) r0 = row / 128 * 128, r1 = std::min(x.rows, r0 + 128);
  if (scaling == Fp8Scaling::block || scaling == Fp8Scaling::square)
    c0 = column / 128 * 128, c1 = std::min(x.columns, c0 + 128);
  double amax = 0;
  for (int64_t r = r0; r < r1; ++r) {
    for (int64_t c = c0; c < c1; ++c) amax = std::max(amax, std::abs(x.at(r, c)));
  }
  if (amax == 0) return 1;
  double scale = std::ldexp(1.0, -126);
  while (amax / scale > largest_of(format)) scale *= 2;
  return scale;
}

int64_t scale_index(Fp8Scaling scaling, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  switch (scaling) {
    case Fp8Scaling::row:
      return row;
    case Fp8Scaling::block:
      return column / 128 * rows + row;
    case Fp8Scaling::square:
      return row / 128 * ((fp8_blocks(columns) + 3) / 4 * 4) + column / 128;
    default:
      return 0;
  }
}

Matrix transposed(const Matrix& x) {
  Matrix t{x.columns, x.rows, Values(x.values.size())};
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.columns; ++c) t.values[static_cast<size_t>(c * x.rows + r)] = x.at(r, c);
  }
  return t;
}

struct Copy {
  Memory data, scales;
};

class Fp8Test : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || on_cpu()) return;
    if (!device().properties().fp8) GTEST_SKIP() << "this GPU does not multiply fp8";
  }
  // cuBLASLt knows the finer scales on compute capability 9.0 alone.
  bool knows(Fp8Scaling scaling) const {
    return on_cpu() || scaling == Fp8Scaling::tensor || device().properties().instruction_set == "sm_90";
  }

  Copy room(const Matrix& x, Fp8Scaling scaling) const {
    const int64_t scales = fp8_scale_count(scaling, x.rows, x.columns);
    return {garbage(x.rows * x.columns, DType::u8), garbage(scales, DType::f32)};
  }

  std::pair<Copy, Copy> cast(const Matrix& x, Fp8 format, Fp8Scaling scaling) {
    Copy straight = room(x, scaling), turned = room(transposed(x), scaling);
    const Memory from = upload(x.values, DType::bf16);
    const Memory amax = garbage(std::max<int64_t>(1, fp8_amax_count(scaling, x.rows, x.columns)), DType::f32);
    run({&amax}, [&] {
      kernels().fp8_amax({scaling, x.rows, x.columns, from.data(), amax.as<float>()}, launch());
    });
    run({&straight.data, &turned.data}, [&] {
      kernels().fp8_cast({.format = format,
                          .scaling = scaling,
                          .rows = x.rows,
                          .columns = x.columns,
                          .x = from.data(),
                          .amax = amax.as<float>(),
                          .straight = {straight.data.data(), straight.scales.as<float>()},
                          .transposed = {turned.data.data(), turned.scales.as<float>()}},
                         launch());
    });
    return {std::move(straight), std::move(turned)};
  }

  // Every scale and every byte of a copy is what the definition says.
  void expect_copy(const Matrix& x, const Copy& copy, Fp8 format, Fp8Scaling scaling) {
    const std::vector<char> bytes = copy.data.bytes();
    const Values scales = download(copy.scales);
    for (int64_t r = 0; r < x.rows; ++r) {
      double expected = 0;
      for (int64_t c = 0; c < x.columns; ++c) {
        if (c % 128 == 0) expected = scale_of(x, format, scaling, r, c);
        const double scale = scales[static_cast<size_t>(scale_index(scaling, x.rows, x.columns, r, c))];
        ASSERT_EQ(scale, expected) << "row " << r << " column " << c;
        const auto byte = static_cast<uint8_t>(bytes[static_cast<size_t>(r * x.columns + c)]);
        ASSERT_EQ(decoded(format, byte), nearest(format, x.at(r, c) / scale))
            << "row " << r << " column " << c << " is " << x.at(r, c) << " with scale " << scale;
      }
    }
  }

  Values widened(const Matrix& x, const Copy& copy, Fp8 format, Fp8Scaling scaling) {
    const std::vector<char> bytes = copy.data.bytes();
    const Values scales = download(copy.scales);
    Values values(bytes.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t r = static_cast<int64_t>(i) / x.columns, c = static_cast<int64_t>(i) % x.columns;
      values[i] = decoded(format, static_cast<uint8_t>(bytes[i])) *
                  scales[static_cast<size_t>(scale_index(scaling, x.rows, x.columns, r, c))];
    }
    return values;
  }
};

TEST_P(Fp8Test, BothCopiesAreRoundedOnceWithTheirOwnScales) {
  for (const Fp8 format : kFormats) {
    for (const Fp8Scaling scaling : kScalings) {
      for (const auto& [rows, columns] : {std::pair(16, 16), std::pair(144, 272), std::pair(256, 128)}) {
        SCOPED_TRACE(fmt::format("{} scaling {} of {} x {}", name_of(format), static_cast<int>(scaling), rows,
                                 columns));
        const Matrix x = random_matrix(rows, columns, 3);
        const auto [straight, turned] = cast(x, format, scaling);
        expect_copy(x, straight, format, scaling);
        expect_copy(transposed(x), turned, format, scaling);
      }
    }
  }
}

TEST_P(Fp8Test, MultipliersReachTheTopHalfOfTheRangeAndNoFurther) {
  for (const Fp8 format : kFormats) {
    for (float amax = 1e-37f; amax < 1e37f; amax *= 1.37f) {
      const double reached = static_cast<double>(amax) * fp8_multiplier(format, amax);
      EXPECT_LE(reached, largest_of(format)) << amax;
      const double least = amax > 1e-30f ? largest_of(format) / 2 : 0;
      EXPECT_GT(reached, least) << amax;
    }
    EXPECT_EQ(fp8_multiplier(format, 0), 1.0f);
    EXPECT_TRUE(std::isnan(fp8_multiplier(format, INFINITY)));
    EXPECT_TRUE(std::isnan(fp8_multiplier(format, NAN)));
  }
}

TEST_P(Fp8Test, OneCopyAloneIsTheSame) {
  const Matrix x = random_matrix(144, 272, 5);
  const auto [straight, turned] = cast(x, Fp8::e4m3, Fp8Scaling::block);
  const Memory from = upload(x.values, DType::bf16);
  Copy alone = room(x, Fp8Scaling::block), turned_alone = room(transposed(x), Fp8Scaling::block);
  Fp8Cast op{.format = Fp8::e4m3,
             .scaling = Fp8Scaling::block,
             .rows = x.rows,
             .columns = x.columns,
             .x = from.data()};
  op.straight = {alone.data.data(), alone.scales.as<float>()};
  kernels().fp8_cast(op, launch());
  op.straight = {};
  op.transposed = {turned_alone.data.data(), turned_alone.scales.as<float>()};
  kernels().fp8_cast(op, launch());
  device().synchronize(nullptr);
  EXPECT_EQ(alone.data.bytes(), straight.data.bytes());
  EXPECT_EQ(turned_alone.data.bytes(), turned.data.bytes());
}

struct Shape3 {
  int64_t m, n, k;
};

TEST_P(Fp8Test, ProductsMatchTheWidenedOperands) {
  // Hopper's tensor cores cut the products of fp8 values 13 bits below the largest of 32 before they add
  // them.
  const double lost = on_cpu() ? 1e-5 : 32 * 0x1p-13;
  for (const Fp8 format : kFormats) {
    for (const Fp8Scaling scaling : {Fp8Scaling::tensor, Fp8Scaling::row, Fp8Scaling::block}) {
      if (!knows(scaling)) continue;
      for (const bool weight : {false, true}) {  // B is one, which under `block` has squares
        if (weight && scaling != Fp8Scaling::block) continue;
        for (const Shape3 s : {Shape3{16, 32, 48}, Shape3{144, 272, 256}}) {
          const Fp8Scaling of_b = weight ? Fp8Scaling::square : scaling;
          SCOPED_TRACE(fmt::format("{} scaling {} and {}: {} x {} x {}", name_of(format),
                                   static_cast<int>(scaling), static_cast<int>(of_b), s.m, s.n, s.k));
          const Matrix a = random_matrix(s.m, s.k, 7), b = random_matrix(s.n, s.k, 8);
          const Copy a8 = cast(a, format, scaling).first, b8 = cast(b, Fp8::e4m3, of_b).first;
          const Values av = widened(a, a8, format, scaling), bv = widened(b, b8, Fp8::e4m3, of_b);
          const Values old = random_values(s.m * s.n, 9), bias = rounded(random_values(s.n, 10), DType::bf16);
          Values sums(static_cast<size_t>(s.m * s.n)), sizes = sums;
          for (int64_t i = 0; i < s.m * s.n; ++i) {
            for (int64_t k = 0; k < s.k; ++k) {
              const double one =
                  av[static_cast<size_t>(i / s.n * s.k + k)] * bv[static_cast<size_t>(i % s.n * s.k + k)];
              sums[static_cast<size_t>(i)] += one, sizes[static_cast<size_t>(i)] += std::abs(one);
            }
          }
          Fp8Gemm op{.m = s.m, .n = s.n, .k = s.k};
          op.a = {format, scaling, a8.data.data(), a8.scales.as<float>()};
          op.b = {Fp8::e4m3, of_b, b8.data.data(), b8.scales.as<float>()};
          const int64_t scratch = kernels().fp8_gemm_workspace(op);
          const auto expect = [&](const Memory& c, double beta, bool biased, double relative) {
            const Values result = download(c);
            for (size_t i = 0; i < result.size(); ++i) {
              const double expected =
                  sums[i] + beta * old[i] + (biased ? bias[i % static_cast<size_t>(s.n)] : 0);
              ASSERT_NEAR(result[i], expected, lost * sizes[i] + relative * std::abs(expected) + 1e-5) << i;
            }
          };
          const Memory added = upload(old, DType::f32), plain = garbage(s.m * s.n, DType::bf16);
          op.c = added.data(), op.out_type = DType::f32, op.beta = 1;
          run({&added}, [&] { kernels().fp8_gemm(op, launch(scratch)); });
          expect(added, 1, false, 1e-5);
          const Memory bias_m = upload(bias, DType::bf16);
          op.c = plain.data(), op.out_type = DType::bf16, op.beta = 0, op.bias = bias_m.data();
          run({&plain}, [&] { kernels().fp8_gemm(op, launch(scratch)); });
          expect(plain, 0, true, 1.0 / 64);
        }
      }
    }
  }
}

TEST_P(Fp8Test, WhatIsNotFiniteDoesNotHide) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const Fp8Scaling scaling : {Fp8Scaling::tensor, Fp8Scaling::row, Fp8Scaling::block}) {
      if (!knows(scaling)) continue;
      Matrix a = random_matrix(16, 128, 11);
      const Matrix b = random_matrix(32, 128, 12);
      a.values[5 * 128 + 7] = bad;
      const Copy a8 = cast(a, Fp8::e5m2, scaling).first, b8 = cast(b, Fp8::e4m3, scaling).first;
      const Memory c = garbage(16 * 32, DType::f32);
      Fp8Gemm op{.m = 16, .n = 32, .k = 128};
      op.a = {Fp8::e5m2, scaling, a8.data.data(), a8.scales.as<float>()};
      op.b = {Fp8::e4m3, scaling, b8.data.data(), b8.scales.as<float>()};
      op.c = c.data(), op.out_type = DType::f32;
      kernels().fp8_gemm(op, launch(kernels().fp8_gemm_workspace(op)));
      device().synchronize(nullptr);
      for (size_t n = 0; n < 32; ++n) EXPECT_TRUE(std::isnan(download(c)[5 * 32 + n])) << bad;
    }
  }
}

// Kernels that find the largest magnitude of what they write.
TEST_P(Fp8Test, ProducersKnowTheirLargestMagnitude) {
  const int64_t rows = 48, width = 144;
  const Matrix gate_up = random_matrix(rows, 2 * width, 13), dy = random_matrix(rows, width, 14);
  const Memory in = upload(gate_up.values, DType::bf16), dy_m = upload(dy.values, DType::bf16);
  const Memory y = garbage(rows * width, DType::bf16), dx = garbage(rows * 2 * width, DType::bf16);
  const Memory amax = garbage(1, DType::f32);
  const auto expect = [&](const Memory& written) {
    double largest = 0;
    for (const double value : download(written)) largest = std::max(largest, std::abs(value));
    EXPECT_EQ(download(amax)[0], largest);
  };
  run({&amax}, [&] {
    kernels().glu({.type = DType::bf16,
                   .rows = rows,
                   .width = width,
                   .gate_up = in.data(),
                   .y = y.data(),
                   .amax = amax.as<float>()},
                  launch());
  });
  expect(y);
  run({&amax}, [&] {
    kernels().glu_backward({.type = DType::bf16,
                            .rows = rows,
                            .width = width,
                            .gate_up = in.data(),
                            .dy = dy_m.data(),
                            .dgate_up = dx.data(),
                            .amax = amax.as<float>()},
                           launch());
  });
  expect(dx);

  std::vector<int32_t> labels(static_cast<size_t>(rows), 3);
  labels[1] = kIgnoredLabel;
  const Memory labels_m = upload_ints(labels), losses = garbage(rows, DType::f32);
  const Memory inputs = upload_plain(std::vector<StepInputs>{{.valid_tokens = 47}});
  const Memory state = upload_plain(std::vector<StepState>{StepState{}});
  const Memory logits = upload(dy.values, DType::bf16);
  run({&amax, &logits}, [&] {
    kernels().cross_entropy({.type = DType::bf16,
                             .rows = rows,
                             .vocab = width,
                             .logits = logits.data(),
                             .labels = labels_m.as<int32_t>(),
                             .losses = losses.as<float>(),
                             .gradient = true,
                             .amax = amax.as<float>(),
                             .inputs = inputs.as<StepInputs>(),
                             .state = state.as<StepState>()},
                            launch());
  });
  expect(logits);
}

LOCKSTEP_ON_EVERY_DEVICE(Fp8Test);

}  // namespace
}  // namespace lockstep::kernels::testing

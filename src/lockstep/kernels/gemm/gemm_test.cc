#include "lockstep/kernels/gemm/gemm.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class GemmTest : public KernelTest {
 protected:
  void check(Gemm op, bool with_bias, uint32_t seed);
};

Values reference(const Gemm& op, const Values& a, const Values& b, const Values& bias, const Values& c) {
  Values out(static_cast<size_t>(op.m * op.n));
  for (int64_t i = 0; i < op.m; ++i) {
    for (int64_t j = 0; j < op.n; ++j) {
      double sum = op.beta != 0 ? op.beta * c[static_cast<size_t>(i * op.n + j)] : 0;
      if (!bias.empty()) sum += bias[static_cast<size_t>(j)];
      for (int64_t k = 0; k < op.k; ++k) {
        sum += a[static_cast<size_t>(op.trans_a ? k * op.m + i : i * op.k + k)] *
               b[static_cast<size_t>(op.trans_b ? j * op.k + k : k * op.n + j)];
      }
      out[static_cast<size_t>(i * op.n + j)] = sum;
    }
  }
  return out;
}

void GemmTest::check(Gemm op, bool with_bias, uint32_t seed) {
  SCOPED_TRACE(fmt::format("m {} n {} k {} in {} out {} trans {}{} beta {} bias {} seed {}", op.m, op.n, op.k,
                           name_of(op.in_type), name_of(op.out_type), op.trans_a, op.trans_b, op.beta,
                           with_bias, seed));
  const Values a = rounded(random_values(op.m * op.k, seed), op.in_type);
  const Values b = rounded(random_values(op.k * op.n, seed + 1), op.in_type);
  const Values c = rounded(random_values(op.m * op.n, seed + 2), op.out_type);
  const Values bias = with_bias ? rounded(random_values(op.n, seed + 3), op.in_type) : Values{};
  const Memory a_there = upload(a, op.in_type), b_there = upload(b, op.in_type),
               bias_there = upload(bias, op.in_type);
  const Memory c_there = op.beta != 0 ? upload(c, op.out_type) : garbage(op.m * op.n, op.out_type);
  op.a = a_there.data();
  op.b = b_there.data();
  op.c = c_there.data();
  op.bias = with_bias ? bias_there.data() : nullptr;
  run({&c_there}, [&] { kernels().gemm(op, launch(kernels().gemm_workspace(op))); });
  expect_close(download(c_there), reference(op, a, b, bias, c),
               tolerance(op.out_type, std::sqrt(static_cast<double>(op.k) + 1)));
}

TEST_P(GemmTest, MatchesReferenceForEveryShapeAndType) {
  struct Size {
    int64_t m, n, k;
  };
  // The last ones are large enough to be cut into tiles, two of them raggedly. MKL's own threads would
  // change bits in {7, 31, 16} and {100, 65, 256}.
  const Size sizes[] = {{1, 1, 1},    {1, 100, 7},    {7, 31, 16},    {33, 7, 64},   {7, 33, 100},
                        {64, 64, 16}, {128, 128, 96}, {100, 65, 256}, {257, 131, 65}};
  uint32_t seed = 1;
  for (const Size& size : sizes) {
    for (const DType type : kEdgeTypes) {
      for (int trans = 0; trans < 4; ++trans) {
        Gemm op{.m = size.m, .n = size.n, .k = size.k, .in_type = type, .out_type = type};
        op.trans_a = (trans & 1) != 0;
        op.trans_b = (trans & 2) != 0;
        check(op, (seed & 1) != 0, seed);
        op.out_type = DType::f32;
        op.beta = 1;
        check(op, false, seed);
        seed += 5;
      }
    }
  }
}

TEST_P(GemmTest, RowsOfAMayLieApart) {
  struct Size {
    int64_t m, n, k;
  };
  uint32_t seed = 1;
  for (const Size size : {Size{7, 33, 100}, Size{64, 137, 48}, Size{257, 131, 65}}) {
    for (const DType type : kEdgeTypes) {
      for (int trans = 0; trans < 4; ++trans, seed += 3) {
        Gemm op{.m = size.m, .n = size.n, .k = size.k, .in_type = type, .out_type = type};
        op.trans_a = (trans & 1) != 0;
        op.trans_b = (trans & 2) != 0;
        SCOPED_TRACE(
            fmt::format("m {} n {} k {} {} trans {} seed {}", op.m, op.n, op.k, name_of(type), trans, seed));
        const Values a = rounded(random_values(op.m * op.k, seed), type);
        const Values b = rounded(random_values(op.k * op.n, seed + 1), type);
        const int64_t a_columns = op.row_of_a();
        const Values expected = reference(op, a, b, {}, {});
        op.a_row = a_columns + 8;
        const Memory a_there = upload(rows_apart(a, a_columns, op.a_row), type), b_there = upload(b, type);
        const Memory c = garbage(op.m * op.n, type);
        op.a = a_there.data(), op.b = b_there.data(), op.c = c.data();
        run({&c}, [&] { kernels().gemm(op, launch(kernels().gemm_workspace(op))); });
        const Tolerance allowed = tolerance(type, std::sqrt(static_cast<double>(op.k) + 1));
        expect_close(download(c), expected, allowed);
      }
    }
  }
}

// Columns of B and of C that lie among others, which stay as they are; scaled, and added to what is there.
TEST_P(GemmTest, RowsOfBAndCMayLieApart) {
  struct Size {
    int64_t m, n, k;
  };
  uint32_t seed = 1;
  for (const Size size : {Size{7, 33, 100}, Size{64, 8, 48}, Size{257, 131, 65}}) {
    for (const DType type : kEdgeTypes) {
      for (int way = 0; way < 16; ++way, seed += 3) {
        Gemm op{.m = size.m, .n = size.n, .k = size.k, .in_type = type, .out_type = type, .alpha = 0.5f};
        op.trans_a = (way & 1) != 0;
        op.trans_b = (way & 2) != 0;
        op.beta = (way & 4) != 0 ? 1.0f : 0.0f;
        const bool alone = (way & 8) != 0;  // as decoding does it
        SCOPED_TRACE(
            fmt::format("m {} n {} k {} {} way {} seed {}", op.m, op.n, op.k, name_of(type), way, seed));
        const Values a = rounded(random_values(op.m * op.k, seed), type),
                     b = rounded(random_values(op.k * op.n, seed + 1), type),
                     c = rounded(random_values(op.m * op.n, seed + 2), type);
        Values halves = a;
        for (double& x : halves) x *= 0.5;
        const Values expected = reference(op, halves, b, {}, c);
        const int64_t b_columns = op.row_of_b();
        op.b_row = b_columns + 8, op.c_row = op.n + 24;
        const Memory a_there = upload(a, type), b_there = upload(rows_apart(b, b_columns, op.b_row), type),
                     c_there = upload(rows_apart(c, op.n, op.c_row), type);
        const Values before = download(c_there);
        op.a = a_there.data(), op.b = b_there.data(), op.c = c_there.data();
        run({&c_there}, [&] {
          Launch with = launch(kernels().gemm_workspace(op));
          with.rows_alone = alone;
          kernels().gemm(op, with);
        });
        const Values after = download(c_there);
        Values found;
        for (size_t i = 0; i < after.size(); ++i) {
          const bool inside = static_cast<int64_t>(i) % op.c_row < op.n;
          if (inside) {
            found.push_back(after[i]);
          } else {
            ASSERT_EQ(after[i], before[i]) << "between the rows, at " << i;
          }
        }
        expect_close(found, expected, tolerance(type, std::sqrt(static_cast<double>(op.k) + 1)));
      }
    }
  }
}

// What decoding relies on: a row's bits do not depend on the rows beside it.
TEST_P(GemmTest, RowsAloneHaveTheSameBitsInAnyCompany) {
  struct Size {
    int64_t n, k;
  };
  uint32_t seed = 900;
  for (const Size size :
       {Size{1, 1}, Size{5, 19}, Size{64, 48}, Size{131, 100}, Size{777, 256}, Size{1030, 31}}) {
    for (const DType type : kEdgeTypes) {
      for (const bool trans_b : {false, true}) {
        SCOPED_TRACE(
            fmt::format("n {} k {} {} trans {} seed {}", size.n, size.k, name_of(type), trans_b, ++seed));
        const int64_t m = 13;
        const Values a = rounded(random_values(m * size.k, seed), type);
        const Values b = rounded(random_values(size.k * size.n, seed + 1), type);
        const Values bias = rounded(random_values(size.n, seed + 2), type);
        const Memory a_there = upload(a, type), b_there = upload(b, type), bias_there = upload(bias, type);
        const auto product = [&](int64_t first, int64_t rows) {
          const Memory c = garbage(rows * size.n, type);
          const Gemm op{
              .m = rows,
              .n = size.n,
              .k = size.k,
              .in_type = type,
              .out_type = type,
              .a = static_cast<const char*>(a_there.data()) + first * size.k * device::size_of(type),
              .b = b_there.data(),
              .c = c.data(),
              .trans_b = trans_b,
              .bias = bias_there.data()};
          run({&c}, [&] {
            Launch alone = launch(kernels().gemm_workspace(op));
            alone.rows_alone = true;
            kernels().gemm(op, alone);
          });
          return download(c);
        };
        const Values all = product(0, m);
        const Gemm plain{.m = m, .n = size.n, .k = size.k, .trans_b = trans_b};
        expect_close(all, reference(plain, a, b, bias, {}),
                     tolerance(type, std::sqrt(static_cast<double>(size.k) + 1)));
        if (std::string(GetParam()) == "cuda") continue;  // the promise is the CPU's
        for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 1}, {3, 1}, {12, 1}, {2, 6}}) {
          const Values some = product(first, rows);
          EXPECT_EQ(some, Values(all.begin() + first * size.n, all.begin() + (first + rows) * size.n))
              << first << " " << rows;
        }
      }
    }
  }
}

TEST_P(GemmTest, GeluBehindItKeepsWhatStoodBefore) {
  for (const DType type : kEdgeTypes) {
    for (const int64_t n : {24, 31, 256}) {
      SCOPED_TRACE(fmt::format("{} n {}", name_of(type), n));
      Gemm op{.m = 40, .n = n, .k = 64, .in_type = type, .out_type = type};
      const Values a = rounded(random_values(op.m * op.k, 1), type),
                   b = rounded(random_values(op.k * n, 2, 0.2), type);
      const Values bias = rounded(random_values(n, 3), type);
      const Memory a_there = upload(a, type), b_there = upload(b, type), bias_there = upload(bias, type);
      const Memory c = garbage(op.m * n, type), before = garbage(op.m * n, type);
      op.a = a_there.data();
      op.b = b_there.data();
      op.c = c.data();
      op.bias = bias_there.data();
      op.before_gelu = before.data();
      run({&c, &before}, [&] { kernels().gemm(op, launch(kernels().gemm_workspace(op))); });
      Values expected = reference(op, a, b, bias, {});
      expect_close(download(before), expected, tolerance(type, 10), "before");
      for (double& x : expected) x *= 0.5 * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
      expect_close(download(c), expected, tolerance(type, 10), "gelu");
    }
  }
}

TEST_P(GemmTest, GelusSlopeScalesTheResult) {
  for (const DType type : kEdgeTypes) {
    for (const int64_t n : {24, 31, 256}) {
      SCOPED_TRACE(fmt::format("{} n {}", name_of(type), n));
      Gemm op{.m = 40, .n = n, .k = 64, .in_type = type, .out_type = type, .trans_b = true};
      const Values a = rounded(random_values(op.m * op.k, 1), type),
                   b = rounded(random_values(op.k * n, 2, 0.2), type);
      const Values at = rounded(random_values(op.m * n, 3), type);
      const Memory a_there = upload(a, type), b_there = upload(b, type), at_there = upload(at, type);
      const Memory c = garbage(op.m * n, type);
      op.a = a_there.data();
      op.b = b_there.data();
      op.c = c.data();
      op.gelu_at = at_there.data();
      run({&c}, [&] { kernels().gemm(op, launch(kernels().gemm_workspace(op))); });
      Values expected = reference(op, a, b, {}, {});
      for (size_t i = 0; i < expected.size(); ++i) {
        const double x = at[i], root = 0.7978845608028654;
        const double t = std::tanh(root * (x + 0.044715 * x * x * x));
        expected[i] *= 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
      }
      expect_close(download(c), expected, tolerance(type, 10));
    }
  }
}

TEST_P(GemmTest, RefusesTooLittleWorkspace) {
  if (!on_cpu()) GTEST_SKIP() << "CUDA multiplies bf16 without a workspace";
  const Memory some = garbage(64, DType::bf16);
  const Gemm op{
      .m = 8, .n = 8, .k = 8, .in_type = DType::bf16, .a = some.data(), .b = some.data(), .c = some.data()};
  EXPECT_THROW(kernels().gemm(op, Launch{}), base::Bug);
}

LOCKSTEP_ON_EVERY_DEVICE(GemmTest);

}  // namespace
}  // namespace lockstep::kernels::testing

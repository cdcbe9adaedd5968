#include "lockstep/kernels/elementwise/activation.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

double value_of(ActivationKind kind, double x) {
  constexpr double kRootTwoOverPi = 0.7978845608028654;
  switch (kind) {
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x)));
    case ActivationKind::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::gelu_sigmoid:
      return x / (1 + std::exp(-1.702 * x));
    case ActivationKind::relu:
      return std::max(x, 0.0);
    case ActivationKind::relu_squared:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case ActivationKind::silu:
      break;
  }
  return x / (1 + std::exp(-x));
}

// At its corner, relu has no slope; we and PyTorch say 0.
double slope(ActivationKind kind, double x) {
  constexpr double kStep = 1e-7;
  if (kind == ActivationKind::relu) return x > 0 ? 1 : 0;
  return (value_of(kind, x + kStep) - value_of(kind, x - kStep)) / (2 * kStep);
}

// Ordinary values, and some at which exponentials overflow or underflow. Squares must fit into fp16.
Values inputs(ActivationKind kind, int64_t count, uint32_t seed, DType type) {
  Values values = random_values(count, seed, 2);
  const double far = kind == ActivationKind::relu_squared ? 15 : 150;
  const double extremes[] = {0, -0.0, 40, -40, far, -far, 1e-6, -1e-6};
  for (size_t i = 0; i < std::min<size_t>(values.size(), 8); ++i) values[i] = extremes[i];
  return rounded(values, type);
}

class ActivationTest : public KernelTest {
 protected:
  void check_gate(ActivationKind kind, DType type, int64_t rows, int64_t width) {
    const Values gate_up = inputs(kind, rows * 2 * width, 1, type),
                 dy = rounded(random_values(rows * width, 2), type);
    Values y(static_cast<size_t>(rows * width)), dgate_up(gate_up.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const auto w = static_cast<size_t>(width), gate_at = i / w * 2 * w + i % w, up_at = gate_at + w;
      y[i] = value_of(kind, gate_up[gate_at]) * gate_up[up_at];
      dgate_up[gate_at] = dy[i] * gate_up[up_at] * slope(kind, gate_up[gate_at]);
      dgate_up[up_at] = dy[i] * value_of(kind, gate_up[gate_at]);
    }
    const Memory gate_m = upload(gate_up, type), dy_m = upload(dy, type);
    const Memory y_m = garbage(rows * width, type), d_m = garbage(rows * 2 * width, type);
    run({&y_m}, [&] { kernels().glu({kind, type, rows, width, gate_m.data(), y_m.data()}, launch()); });
    run({&d_m}, [&] {
      kernels().glu_backward({kind, type, rows, width, gate_m.data(), dy_m.data(), d_m.data()}, launch());
    });
    expect_close(download(y_m), y, tolerance(type), "y");
    expect_close(download(d_m), dgate_up, tolerance(type, 4), "dgate_up");
    // The forward value again on the way, bit for bit, and the gradient in the values' own memory.
    const Memory own_m = upload(gate_up, type), again_m = garbage(rows * width, type);
    kernels().glu_backward({kind, type, rows, width, own_m.data(), dy_m.data(), own_m.data(), again_m.data()},
                           launch());
    EXPECT_EQ(again_m.bytes(), y_m.bytes());
    EXPECT_EQ(own_m.bytes(), d_m.bytes());
  }
};

TEST_P(ActivationTest, EachMatchesItsReference) {
  for (const ActivationKind kind : kActivations) {
    for (const DType type : kEdgeTypes) {
      for (const int64_t count : {1, 7, 100, 40000}) {
        SCOPED_TRACE(fmt::format("{} {} count {}", static_cast<int>(kind), name_of(type), count));
        const Values x = inputs(kind, count, 1, type), dy = rounded(random_values(count, 2), type);
        Values y(x), dx(x);
        for (size_t i = 0; i < x.size(); ++i) {
          y[i] = value_of(kind, x[i]);
          dx[i] = dy[i] * slope(kind, x[i]);
        }
        const Memory x_m = upload(x, type), y_m = garbage(count, type), dx_m = upload(dy, type);
        run({&y_m}, [&] { kernels().activate({kind, type, count, x_m.data(), y_m.data()}, launch()); });
        run({&dx_m}, [&] {
          kernels().activate_backward({kind, type, count, x_m.data(), dx_m.data(), dx_m.data()}, launch());
        });
        expect_close(download(y_m), y, tolerance(type, 0.1), "y");
        expect_close(download(dx_m), dx, tolerance(type), "dx");
      }
    }
  }
}

// A weight that went wrong is seen in the loss; a nonlinearity must not make a number of it again.
TEST_P(ActivationTest, WhatIsNotANumberStaysSo) {
  for (const ActivationKind kind : kActivations) {
    SCOPED_TRACE(static_cast<int>(kind));
    const Values bad = {std::nan(""), 1, 2}, one = {1, 1, 1};
    const Memory x = upload(bad, DType::f32), dy = upload(one, DType::f32);
    const Memory y = garbage(3, DType::f32), dx = garbage(3, DType::f32);
    kernels().activate({kind, DType::f32, 3, x.data(), y.data()}, launch());
    kernels().activate_backward({kind, DType::f32, 3, dy.data(), x.data(), dx.data()}, launch());
    EXPECT_TRUE(std::isnan(download(y)[0]));
    EXPECT_TRUE(std::isnan(download(dx)[0]));
    EXPECT_FALSE(std::isnan(download(y)[1]));
  }
}

TEST_P(ActivationTest, EachGateMatchesItsReference) {
  for (const ActivationKind kind : kActivations) {
    for (const DType type : kEdgeTypes) {
      for (const int64_t rows : {1, 33}) {
        for (const int64_t width : {1, 7, 100, 512}) {
          SCOPED_TRACE(
              fmt::format("{} {} rows {} width {}", static_cast<int>(kind), name_of(type), rows, width));
          check_gate(kind, type, rows, width);
        }
      }
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(ActivationTest);

}  // namespace
}  // namespace lockstep::kernels::testing

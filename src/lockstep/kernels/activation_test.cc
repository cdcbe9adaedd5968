#include "lockstep/kernels/activation.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

constexpr double kRootTwoOverPi = 0.7978845608028654;

double gelu_of(double x) { return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x))); }
double silu_of(double x) { return x / (1 + std::exp(-x)); }

template <class Function>
double slope(Function f, double x) {
  constexpr double kStep = 1e-5;
  return (f(x + kStep) - f(x - kStep)) / (2 * kStep);
}

// Ordinary values, and some at which exponentials overflow or vanish.
Values inputs(int64_t count, uint32_t seed, DType type) {
  Values values = random_values(count, seed, 2);
  const double extremes[] = {0, -0.0, 40, -40, 150, -150, 1e-6, -1e-6};
  for (size_t i = 0; i < std::min<size_t>(values.size(), 8); ++i) values[i] = extremes[i];
  return rounded(values, type);
}

class ActivationTest : public KernelTest {};

TEST_P(ActivationTest, GeluMatchesReference) {
  for (const DType type : kEdgeTypes) {
    for (const int64_t count : {1, 7, 100, 40000}) {
      SCOPED_TRACE(fmt::format("{} count {}", name_of(type), count));
      const Values x = inputs(count, 1, type), dy = rounded(random_values(count, 2), type);
      Values y(x), dx(x);
      for (size_t i = 0; i < x.size(); ++i) {
        y[i] = gelu_of(x[i]);
        dx[i] = dy[i] * slope(gelu_of, x[i]);
      }
      const Memory x_m = upload(x, type), y_m = garbage(count, type), dx_m = upload(dy, type);
      run({&y_m}, [&] { kernels().gelu({type, count, x_m.data(), y_m.data()}, launch()); });
      run({&dx_m}, [&] {
        kernels().gelu_backward({type, count, x_m.data(), dx_m.data(), dx_m.data()}, launch());
      });
      expect_close(download(y_m), y, tolerance(type, 0.1), "y");
      expect_close(download(dx_m), dx, tolerance(type), "dx");
    }
  }
}

TEST_P(ActivationTest, SwigluMatchesReference) {
  for (const DType type : kEdgeTypes) {
    for (const int64_t rows : {1, 33}) {
      for (const int64_t width : {1, 7, 100, 512}) {
        SCOPED_TRACE(fmt::format("{} rows {} width {}", name_of(type), rows, width));
        const Values gate_up = inputs(rows * 2 * width, 1, type),
                     dy = rounded(random_values(rows * width, 2), type);
        Values y(static_cast<size_t>(rows * width)), dgate_up(gate_up.size());
        for (size_t i = 0; i < y.size(); ++i) {
          const auto w = static_cast<size_t>(width), gate_at = i / w * 2 * w + i % w, up_at = gate_at + w;
          y[i] = silu_of(gate_up[gate_at]) * gate_up[up_at];
          dgate_up[gate_at] = dy[i] * gate_up[up_at] * slope(silu_of, gate_up[gate_at]);
          dgate_up[up_at] = dy[i] * silu_of(gate_up[gate_at]);
        }
        const Memory gate_m = upload(gate_up, type), dy_m = upload(dy, type);
        const Memory y_m = garbage(rows * width, type), d_m = garbage(rows * 2 * width, type);
        run({&y_m}, [&] { kernels().swiglu({type, rows, width, gate_m.data(), y_m.data()}, launch()); });
        run({&d_m}, [&] {
          kernels().swiglu_backward({type, rows, width, gate_m.data(), dy_m.data(), d_m.data()}, launch());
        });
        expect_close(download(y_m), y, tolerance(type), "y");
        expect_close(download(d_m), dgate_up, tolerance(type, 4), "dgate_up");
        // The forward value again on the way, bit for bit, and the gradient in the values' own memory.
        const Memory own_m = upload(gate_up, type), again_m = garbage(rows * width, type);
        const SwigluBackward again{type,        rows,         width,         own_m.data(),
                                   dy_m.data(), own_m.data(), again_m.data()};
        kernels().swiglu_backward(again, launch());
        EXPECT_EQ(again_m.bytes(), y_m.bytes());
        EXPECT_EQ(own_m.bytes(), d_m.bytes());
      }
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(ActivationTest);

}  // namespace
}  // namespace lockstep::kernels::testing

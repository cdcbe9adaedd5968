#include "lockstep/kernels/optimizer/muon.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class MuonTest : public KernelTest {};

// Sizes below, at and above the runs that threads and sums are cut into.
constexpr int64_t kCounts[] = {1, 63, 4096, 4097, kNormalizeRun + 3};

TEST_P(MuonTest, MomentumLooksAhead) {
  for (const int64_t count : kCounts) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const uint32_t apply : {1u, 0u}) {
        SCOPED_TRACE(fmt::format("{} {} {}", count, name_of(type), apply));
        const Values g = rounded(random_values(count, 1), DType::f32),
                     m0 = rounded(random_values(count, 2), type);
        const double beta = static_cast<double>(0.9f);
        Values m = m0, direction(m.size(), 0);
        for (size_t i = 0; apply != 0 && i < m.size(); ++i) {
          m[i] = beta * m[i] + (1 - beta) * g[i] * 0.5;
          direction[i] = (1 - beta) * g[i] * 0.5 + beta * m[i];
        }
        StepState state;
        state.clip = 0.5f, state.apply = apply;
        const Memory g_m = upload(g, DType::f32), m_m = upload(m0, type), out = garbage(count, DType::f32);
        const Memory state_m = upload_plain<StepState>({state});
        const MuonMomentum op{.count = count,
                              .gradient = g_m.as<float>(),
                              .m = m_m.data(),
                              .m_type = type,
                              .beta = 0.9f,
                              .direction = out.as<float>(),
                              .state = state_m.as<StepState>()};
        run({&m_m, &out}, [&] { kernels().muon_momentum(op, launch()); });
        expect_close(download(out), direction, tolerance(DType::f32), "direction");
        expect_close(download(m_m), m, tolerance(type), "m");
      }
    }
  }
}

TEST_P(MuonTest, NormalizeGivesNormOne) {
  for (const int64_t count : kCounts) {
    const Values x = rounded(random_values(count, 3), DType::f32);
    double norm = 0;
    for (const double value : x) norm += value * value;
    Values expected = x;
    for (double& value : expected) value /= std::sqrt(norm);
    const Memory x_m = upload(x, DType::f32), sums = garbage(2, DType::f64);
    run({&x_m}, [&] { kernels().normalize({count, x_m.as<float>(), sums.as<double>()}, launch()); });
    expect_close(download(x_m), expected, tolerance(DType::f32));
    const Memory zeros = upload(Values(x.size(), 0), DType::f32);  // stay, and nothing is divided by zero
    run({&zeros}, [&] { kernels().normalize({count, zeros.as<float>(), sums.as<double>()}, launch()); });
    expect_close(download(zeros), Values(x.size(), 0), {0, 0});
  }
}

Values blended_of(const Values& x, const Values& y) {
  Values out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = -4.75 * x[i] + 2 * y[i];
  return out;
}

TEST_P(MuonTest, BlendsAndApplies) {
  for (const int64_t count : kCounts) {
    const Values x = rounded(random_values(count, 4), DType::f32),
                 y = rounded(random_values(count, 5), DType::f32);
    const Values blended = blended_of(x, y);
    Values moved(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      moved[i] = x[i] - 0.25 * 0.5 * (3 * y[i] + 0.5 * x[i]);
    }
    const Memory x_m = upload(x, DType::f32), y_m = upload(y, DType::f32), out = garbage(count, DType::f32);
    const Blend blend{DType::f32, count, x_m.data(), y_m.data(), -4.75f, 2, out.data()};
    run({&out}, [&] { kernels().blend(blend, launch()); });
    expect_close(download(out), blended, tolerance(DType::f32));
    const Memory x16 = upload(x, DType::bf16), y16 = upload(y, DType::bf16),
                 out16 = garbage(count, DType::bf16);
    run({&out16}, [&] {
      kernels().blend({DType::bf16, count, x16.data(), y16.data(), -4.75f, 2, out16.data()}, launch());
    });
    expect_close(download(out16), blended_of(download(x16), download(y16)), tolerance(DType::bf16));
    for (const uint32_t apply : {0u, 1u}) {
      StepState state;
      state.apply = apply;
      const Memory state_m = upload_plain<StepState>({state}),
                   inputs = upload_plain<StepInputs>({StepInputs{.learning_rate = 0.25f}});
      const MuonApply op{.count = count,
                         .master = x_m.as<float>(),
                         .direction = y_m.as<float>(),
                         .rate = 0.5f,
                         .scale = 3,
                         .weight_decay = 0.5f,
                         .inputs = inputs.as<StepInputs>(),
                         .state = state_m.as<StepState>()};
      run({&x_m}, [&] { kernels().muon_apply(op, launch()); });
      expect_close(download(x_m), apply == 0 ? x : moved, tolerance(DType::f32));
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(MuonTest);

}  // namespace
}  // namespace lockstep::kernels::testing

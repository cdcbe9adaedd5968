#include "lockstep/kernels/norm/norm.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

struct Case {
  NormKind kind;
  DType type;
  int64_t rows, width;
  bool residual;
  double offset() const { return rows == 33 ? 1 : 0; }  // of the weights
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const DType type : kEdgeTypes) {
      for (const int64_t rows : {1, 33, 200}) {
        for (const int64_t width : {1, 7, 100, 256}) {
          for (const bool residual : {false, true}) all.push_back({kind, type, rows, width, residual});
        }
      }
      // Several vectors a thread, teams of every size, and rows too wide for any.
      for (const int64_t width : {776, 1024, 2056, 2560, 5120}) all.push_back({kind, type, 200, width, true});
      for (const int64_t width : {8192, 12296}) all.push_back({kind, type, 70, width, false});
    }
  }
  return all;
}

std::string describe(const Case& c) {
  return fmt::format("{} {} rows {} width {} residual {}", c.kind == NormKind::layer ? "layer" : "rms",
                     name_of(c.type), c.rows, c.width, c.residual);
}

struct Statistics {
  double mean = 0, rstd = 0;
};

Statistics statistics(const double* row, int64_t width, NormKind kind) {
  Statistics result;
  if (kind == NormKind::layer) {
    for (int64_t i = 0; i < width; ++i) result.mean += row[i] / static_cast<double>(width);
  }
  double square = 0;
  for (int64_t i = 0; i < width; ++i) square += (row[i] - result.mean) * (row[i] - result.mean);
  result.rstd = 1 / std::sqrt(square / static_cast<double>(width) + static_cast<double>(1e-5f));
  return result;
}

class NormTest : public KernelTest {};

TEST_P(NormTest, ForwardMatchesReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const int64_t count = c.rows * c.width;
    const bool layer = c.kind == NormKind::layer;
    const Values x = rounded(random_values(count, 1), c.type),
                 residual = rounded(random_values(count, 2), c.type);
    const Values weight = rounded(random_values(c.width, 3), c.type),
                 bias = rounded(random_values(c.width, 4), c.type);
    const Memory x_m = upload(x, c.type), residual_m = upload(residual, c.type),
                 weight_m = upload(weight, c.type);
    const Memory bias_m = upload(bias, c.type), sum_m = garbage(count, c.type), y_m = garbage(count, c.type);
    const Memory mean_m = garbage(c.rows, DType::f32), rstd_m = garbage(c.rows, DType::f32);
    NormForward op{.kind = c.kind, .type = c.type, .rows = c.rows, .width = c.width};
    op.x = x_m.data();
    op.residual = c.residual ? residual_m.data() : nullptr;
    op.sum = c.residual ? sum_m.data() : nullptr;
    op.weight = weight_m.data();
    op.bias = layer ? bias_m.data() : nullptr;
    op.y = y_m.data();
    op.mean = layer ? mean_m.as<float>() : nullptr;
    op.rstd = rstd_m.as<float>();
    op.weight_offset = static_cast<float>(c.offset());
    run({&sum_m, &y_m, &mean_m, &rstd_m}, [&] { kernels().norm_forward(op, launch()); });

    Values sum = x, y(static_cast<size_t>(count));
    if (c.residual) {
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i] = round_to(c.type, round_to(DType::f32, x[i] + residual[i]));
      EXPECT_EQ(download(sum_m), sum);  // rounded exactly once: what a pipeline cut would send
    }
    for (int64_t row = 0; row < c.rows; ++row) {
      const Statistics s = statistics(&sum[static_cast<size_t>(row * c.width)], c.width, c.kind);
      for (int64_t i = 0; i < c.width; ++i) {
        const auto at = static_cast<size_t>(row * c.width + i), column = static_cast<size_t>(i);
        y[at] = (sum[at] - s.mean) * s.rstd * (weight[column] + c.offset()) + (layer ? bias[column] : 0);
      }
    }
    expect_close(download(y_m), y, tolerance(c.type, 4));
  }
}

TEST_P(NormTest, BackwardMatchesReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const int64_t count = c.rows * c.width, parts = row_parts(c.rows);
    const bool layer = c.kind == NormKind::layer;
    const Values sum = rounded(random_values(count, 1), c.type),
                 dy = rounded(random_values(count, 2), c.type);
    const Values dresidual = rounded(random_values(count, 3), c.type);
    const Values weight = rounded(random_values(c.width, 4), c.type);
    Values mean(static_cast<size_t>(c.rows)), rstd(mean), dsum(static_cast<size_t>(count));
    Values dweight(static_cast<size_t>(c.width)), dbias(dweight);
    const auto n = static_cast<double>(c.width);
    for (int64_t row = 0; row < c.rows; ++row) {
      const auto r = static_cast<size_t>(row), first = static_cast<size_t>(row * c.width);
      const Statistics s = statistics(&sum[first], c.width, c.kind);
      mean[r] = round_to(DType::f32, s.mean);
      rstd[r] = round_to(DType::f32, s.rstd);
      double plain = 0, with_normal = 0;
      for (size_t i = 0; i < weight.size(); ++i) {
        const double normal = (sum[first + i] - mean[r]) * rstd[r],
                     weighted = dy[first + i] * (weight[i] + c.offset());
        plain += weighted / n;
        with_normal += weighted * normal / n;
        dweight[i] += dy[first + i] * normal;
        dbias[i] += dy[first + i];
      }
      if (!layer) plain = 0;
      for (size_t i = 0; i < weight.size(); ++i) {
        const double normal = (sum[first + i] - mean[r]) * rstd[r];
        dsum[first + i] =
            (dy[first + i] * (weight[i] + c.offset()) - plain - normal * with_normal) * rstd[r] +
            (c.residual ? dresidual[first + i] : 0);
      }
    }

    const Memory dy_m = upload(dy, c.type), sum_m = upload(sum, c.type), weight_m = upload(weight, c.type);
    const Memory mean_m = upload(mean, DType::f32), rstd_m = upload(rstd, DType::f32);
    const Memory dsum_m = c.residual ? upload(dresidual, c.type) : garbage(count, c.type);  // in place
    const Memory partial_w = garbage(parts * c.width, DType::f32),
                 partial_b = garbage(parts * c.width, DType::f32);
    NormBackward op{.kind = c.kind, .type = c.type, .rows = c.rows, .width = c.width};
    op.dy = dy_m.data();
    op.sum = sum_m.data();
    op.weight = weight_m.data();
    op.mean = layer ? mean_m.as<float>() : nullptr;
    op.rstd = rstd_m.as<float>();
    op.dresidual = c.residual ? dsum_m.data() : nullptr;
    op.dsum = dsum_m.data();
    op.partial_dweight = partial_w.as<float>();
    op.partial_dbias = layer ? partial_b.as<float>() : nullptr;
    op.weight_offset = static_cast<float>(c.offset());
    run({&dsum_m, &partial_w, &partial_b}, [&] { kernels().norm_backward(op, launch()); });
    // With a width of one a layer norm's output is constant: 1 / sqrt(epsilon) magnifies every rounding.
    const double size = c.width == 1 ? 400 : 8;
    expect_close(download(dsum_m), dsum, tolerance(c.type, size), "dsum");

    const Memory gradient = upload(Values(static_cast<size_t>(c.width), 1.0), DType::f32);
    const Memory of_bias = upload(Values(static_cast<size_t>(c.width), 2.0), DType::f32);
    NormWeightBackward fold{.parts = parts, .width = c.width};
    fold.partial = partial_w.as<float>(), fold.gradient = gradient.as<float>();
    if (layer) fold.partial_bias = partial_b.as<float>(), fold.bias_gradient = of_bias.as<float>();
    fold.accumulate = true;
    run({&gradient, &of_bias}, [&] { kernels().norm_weight_backward(fold, launch()); });
    for (double& value : dweight) value += 1;
    for (double& value : dbias) value += 2;
    expect_close(download(gradient), dweight, tolerance(DType::f32, 50 * size), "dweight");
    if (layer) expect_close(download(of_bias), dbias, tolerance(DType::f32, 50), "dbias");
    fold.accumulate = false;
    run({&gradient}, [&] { kernels().norm_weight_backward(fold, launch()); });
    for (double& value : dweight) value -= 1;
    expect_close(download(gradient), dweight, tolerance(DType::f32, 50 * size), "dweight, written");
  }
}

TEST_P(NormTest, BiasBackwardSumsRows) {
  for (const DType type : kEdgeTypes) {
    for (const int64_t rows : {1, 33, 500}) {
      for (const int64_t width : {1, 7, 100, 384}) {
        SCOPED_TRACE(fmt::format("{} rows {} width {}", name_of(type), rows, width));
        const Values dy = rounded(random_values(rows * width, 9), type);
        Values expected(static_cast<size_t>(width), 0.5);
        for (size_t i = 0; i < dy.size(); ++i) expected[i % expected.size()] += dy[i];
        const Memory dy_m = upload(dy, type),
                     gradient = upload(Values(static_cast<size_t>(width), 0.5), DType::f32);
        BiasBackward op{type, rows, width, dy_m.data(), gradient.as<float>(), true};
        const int64_t bytes = bias_backward_workspace(rows, width);
        run({&gradient}, [&] { kernels().bias_backward(op, launch(bytes)); });
        expect_close(download(gradient), expected, tolerance(DType::f32, 30));
        op.accumulate = false;
        for (double& value : expected) value -= 0.5;
        run({&gradient}, [&] { kernels().bias_backward(op, launch(bytes)); });
        expect_close(download(gradient), expected, tolerance(DType::f32, 30));
      }
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(NormTest);

}  // namespace
}  // namespace lockstep::kernels::testing

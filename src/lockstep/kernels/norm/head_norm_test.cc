#include "lockstep/kernels/norm/head_norm.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

constexpr double kEpsilon = 1e-3;

// q_runs, q_width, k_runs, k_width, rest
constexpr int64_t kSizes[][5] = {{1, 1, 1, 1, 1},    {4, 8, 2, 8, 16},  {3, 7, 1, 7, 7},
                                 {1, 96, 1, 32, 32}, {2, 64, 2, 64, 0}, {8, 128, 1, 128, 128}};

std::vector<HeadRuns> cases() {
  std::vector<HeadRuns> all;
  for (const DType type : kEdgeTypes) {
    for (const auto& s : kSizes) {
      for (const int64_t rows : {1, 5, 70}) {
        all.push_back({.type = type,
                       .rows = rows,
                       .q_runs = s[0],
                       .q_width = s[1],
                       .k_runs = s[2],
                       .k_width = s[3],
                       .rest = s[4],
                       .weight_offset = rows == 5 ? 1.0f : 0.0f});
      }
    }
  }
  return all;
}

// In fp64, straight from the definition: y = x / sqrt(mean(x^2) + epsilon) * (weight + offset).
struct Reference {
  HeadRuns runs;
  Values x, q_weight, k_weight, y, rstd;

  Reference(const HeadRuns& r, Values input, Values q, Values k)
      : runs(r), x(std::move(input)), q_weight(std::move(q)), k_weight(std::move(k)), y(x) {
    each_run([&](size_t at, size_t width, const Values& weight, Values*) {
      double squares = 0;
      for (size_t i = 0; i < width; ++i) squares += x[at + i] * x[at + i];
      rstd.push_back(1 / std::sqrt(squares / static_cast<double>(width) + kEpsilon));
      for (size_t i = 0; i < width; ++i) y[at + i] = x[at + i] * rstd.back() * (weight[i] + offset());
    });
  }
  double offset() const { return static_cast<double>(runs.weight_offset); }
  template <class Visit>
  void each_run(Visit visit, Values* dq = nullptr, Values* dk = nullptr) const {
    for (int64_t row = 0; row < runs.rows; ++row) {
      auto at = static_cast<size_t>(row * runs.row_width());
      for (int64_t run = 0; run < runs.runs(); ++run) {
        const bool query = run < runs.q_runs;
        const auto width = static_cast<size_t>(query ? runs.q_width : runs.k_width);
        visit(at, width, query ? q_weight : k_weight, query ? dq : dk);
        at += width;
      }
    }
  }
  Values backward(const Values& dy, Values& dq, Values& dk) const {
    Values dx = dy;
    dq.assign(q_weight.size(), 0);
    dk.assign(k_weight.size(), 0);
    size_t number = 0;
    each_run(
        [&](size_t at, size_t width, const Values& weight, Values* dweight) {
          const double r = rstd[number++];
          double along = 0;
          for (size_t i = 0; i < width; ++i) along += dy[at + i] * (weight[i] + offset()) * x[at + i] * r;
          for (size_t i = 0; i < width; ++i) {
            (*dweight)[i] += dy[at + i] * x[at + i] * r;
            dx[at + i] = r * (dy[at + i] * (weight[i] + offset()) -
                              x[at + i] * r * along / static_cast<double>(width));
          }
        },
        &dq, &dk);
    return dx;
  }
};

class HeadNormTest : public KernelTest {};

TEST_P(HeadNormTest, MatchesReferenceBothWays) {
  for (HeadRuns runs : cases()) {
    SCOPED_TRACE(fmt::format("{} rows {} q {} x {} k {} x {} rest {}", name_of(runs.type), runs.rows,
                             runs.q_runs, runs.q_width, runs.k_runs, runs.k_width, runs.rest));
    const int64_t count = runs.rows * runs.row_width(), parts = row_parts(runs.rows);
    const Reference reference(runs, rounded(random_values(count, 1), runs.type),
                              rounded(random_values(runs.q_width, 2), runs.type),
                              rounded(random_values(runs.k_width, 3), runs.type));
    const Values dy = rounded(random_values(count, 4), runs.type);
    const Memory x = upload(reference.x, runs.type), y = garbage(count, runs.type);
    const Memory q_weight = upload(reference.q_weight, runs.type),
                 k_weight = upload(reference.k_weight, runs.type);
    const Memory rstd = garbage(runs.rows * runs.runs(), DType::f32);
    runs.q_weight = q_weight.data();
    runs.k_weight = k_weight.data();
    const HeadNorm there{.runs = runs,
                         .epsilon = static_cast<float>(kEpsilon),
                         .x = x.data(),
                         .y = y.data(),
                         .rstd = rstd.as<float>()};
    run({&y, &rstd}, [&] { kernels().head_norm(there, launch()); });
    expect_close(download(y), reference.y, tolerance(runs.type, 2), "y");
    expect_close(download(rstd), reference.rstd, tolerance(DType::f32), "rstd");

    const Memory dy_m = upload(dy, runs.type), dx = garbage(count, runs.type);
    const Memory partial_q = garbage(parts * runs.q_width, DType::f32),
                 partial_k = garbage(parts * runs.k_width, DType::f32);
    const HeadNormBackward back{.runs = runs,
                                .dy = dy_m.data(),
                                .x = x.data(),
                                .rstd = rstd.as<float>(),
                                .dx = dx.data(),
                                .partial_q = partial_q.as<float>(),
                                .partial_k = partial_k.as<float>()};
    run({&dx, &partial_q, &partial_k}, [&] { kernels().head_norm_backward(back, launch()); });
    Values dq, dk;
    expect_close(download(dx), reference.backward(dy, dq, dk), tolerance(runs.type, 8), "dx");
    const auto expect_weight = [&](const Memory& partial, const Values& expected, const char* what) {
      const Memory gradient = garbage(static_cast<int64_t>(expected.size()), DType::f32);
      kernels().norm_weight_backward({.parts = parts,
                                      .width = static_cast<int64_t>(expected.size()),
                                      .partial = partial.as<float>(),
                                      .gradient = gradient.as<float>()},
                                     launch());
      expect_close(download(gradient), expected, tolerance(DType::f32, 40), what);
    };
    expect_weight(partial_q, dq, "dq");
    expect_weight(partial_k, dk, "dk");
  }
}

// A run in two parts, whose sums of squares are added up between: values and gradients of the whole.
TEST_P(HeadNormTest, PartsOfARunGiveTheWhole) {
  const int64_t rows = 20, q = 48, k = 16, rest = 16;
  for (const DType type : kEdgeTypes) {
    SCOPED_TRACE(name_of(type));
    const HeadRuns whole{
        .type = type, .rows = rows, .q_runs = 1, .q_width = q, .k_runs = 1, .k_width = k, .rest = rest};
    const Reference reference(whole, rounded(random_values(rows * whole.row_width(), 1), type),
                              rounded(random_values(q, 2), type), rounded(random_values(k, 3), type));
    const Values dy = rounded(random_values(rows * whole.row_width(), 4), type);
    Values dq, dk;
    const Values dx = reference.backward(dy, dq, dk);
    const auto part_of = [&](const Values& rows_of, int64_t part) {  // half of q, of k and of the rest
      Values all;
      for (int64_t row = 0; row < rows; ++row) {
        int64_t at = row * whole.row_width();
        for (const int64_t width : {q, k, rest}) {
          const auto begin = rows_of.begin() + at + part * width / 2;
          all.insert(all.end(), begin, begin + width / 2);
          at += width;
        }
      }
      return all;
    };
    std::vector<Memory> x, dpassed, y, rstd, q_weight, k_weight, squares, dsquares;
    std::vector<HeadRuns> runs;
    for (int64_t part = 0; part < 2; ++part) {
      x.push_back(upload(part_of(reference.x, part), type));
      dpassed.push_back(garbage(x.back().count(), type));
      y.push_back(garbage(x.back().count(), type));
      rstd.push_back(garbage(rows * 2, DType::f32));
      squares.push_back(garbage(rows * 2, DType::f32));
      dsquares.push_back(garbage(rows * 2, DType::f32));
      q_weight.push_back(upload(columns_of(reference.q_weight, q, part * q / 2, (part + 1) * q / 2), type));
      k_weight.push_back(upload(columns_of(reference.k_weight, k, part * k / 2, (part + 1) * k / 2), type));
      HeadRuns half = whole;
      half.q_width = q / 2, half.k_width = k / 2, half.rest = rest / 2;
      half.q_whole = q, half.k_whole = k;
      half.q_weight = q_weight.back().data(), half.k_weight = k_weight.back().data();
      runs.push_back(half);
      run({&squares.back()}, [&] {
        kernels().head_squares({.runs = half, .x = x.back().data(), .squares = squares.back().as<float>()},
                               launch());
      });
    }
    const auto added = [&](const std::vector<Memory>& parts) {
      Values sum = download(parts[0]);
      const Values other = download(parts[1]);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
      return upload(sum, DType::f32);
    };
    const Memory all_squares = added(squares);
    const Memory partial_q = garbage(row_parts(rows) * q, DType::f32),
                 partial_k = garbage(row_parts(rows) * k, DType::f32);
    for (size_t part = 0; part < 2; ++part) {
      const HeadNorm there{.runs = runs[part],
                           .epsilon = static_cast<float>(kEpsilon),
                           .x = x[part].data(),
                           .y = y[part].data(),
                           .rstd = rstd[part].as<float>(),
                           .squares = all_squares.as<float>()};
      run({&y[part]}, [&] { kernels().head_norm(there, launch()); });
      expect_close(download(y[part]), part_of(reference.y, static_cast<int64_t>(part)), tolerance(type, 2));
      const Memory dy_m = upload(part_of(dy, static_cast<int64_t>(part)), type);
      const HeadNormBackward back{.runs = runs[part],
                                  .dy = dy_m.data(),
                                  .x = x[part].data(),
                                  .rstd = rstd[part].as<float>(),
                                  .dx = dpassed[part].data(),
                                  .partial_q = partial_q.as<float>(),
                                  .partial_k = partial_k.as<float>(),
                                  .dsquares = dsquares[part].as<float>()};
      run({&dpassed[part], &dsquares[part]}, [&] { kernels().head_norm_backward(back, launch()); });
    }
    const Memory all_dsquares = added(dsquares);
    for (size_t part = 0; part < 2; ++part) {
      const Memory out = garbage(x[part].count(), type);
      const HeadSquaresBackward last{.runs = runs[part],
                                     .x = x[part].data(),
                                     .dsquares = all_dsquares.as<float>(),
                                     .dpassed = dpassed[part].data(),
                                     .dx = out.data()};
      run({&out}, [&] { kernels().head_squares_backward(last, launch()); });
      expect_close(download(out), part_of(dx, static_cast<int64_t>(part)), tolerance(type, 16), "dx");
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(HeadNormTest);

}  // namespace
}  // namespace lockstep::kernels::testing

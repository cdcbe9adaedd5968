// An optimizer that keeps a value for each row and each column of a matrix instead of one for each element,
// as Adafactor does (Shazeer and Stern 2018), and so must see matrices whole. Other parameters are updated
// run by run, with a value for each element.
#include <cmath>

#include "extension.h"
#include "lockstep/optim/optimizer.h"

namespace {

using namespace lockstep;
using optim::StateTensor;

bool is_matrix(const device::Shape& shape) { return shape.rank() == 2; }

std::vector<StateTensor> state(const device::Shape& of) {
  if (!is_matrix(of)) return {{.name = "v", .shape = of}};
  return {{.name = "rows", .shape = {of[0]}, .type = StateTensor::Type::f32},
          {.name = "columns", .shape = {of[1]}, .type = StateTensor::Type::f32}};
}

void matrix(const optim::WholeUpdate& u) {
  if (u.step->apply == 0) return;
  const int64_t rows = u.master.shape[0], columns = u.master.shape[1];
  const auto beta = static_cast<float>(u.constants.beta2), clip = u.step->clip;
  float *const r = u.state[0].as<float>(), *const c = u.state[1].as<float>();
  const float* const g = u.gradient.as<float>();
  std::vector<double> by_row(static_cast<size_t>(rows)), by_column(static_cast<size_t>(columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const double square = std::pow(static_cast<double>(g[i * columns + j] * clip), 2) + 1e-30;
      by_row[static_cast<size_t>(i)] += square / static_cast<double>(columns);
      by_column[static_cast<size_t>(j)] += square / static_cast<double>(rows);
    }
  }
  double mean = 0;
  for (int64_t i = 0; i < rows; ++i) {
    r[i] = beta * r[i] + (1 - beta) * static_cast<float>(by_row[static_cast<size_t>(i)]);
    mean += static_cast<double>(r[i]) / static_cast<double>(rows);
  }
  for (int64_t j = 0; j < columns; ++j)
    c[j] = beta * c[j] + (1 - beta) * static_cast<float>(by_column[static_cast<size_t>(j)]);
  const float rate = u.inputs->learning_rate * u.rate;
  const double begun = 1 - std::pow(u.constants.beta2, static_cast<double>(u.step->applied));
  float* const p = u.master.as<float>();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const double v = static_cast<double>(r[i]) * static_cast<double>(c[j]) / mean / begun;
      const float step = g[i * columns + j] * clip / static_cast<float>(std::sqrt(v) + u.constants.epsilon);
      p[i * columns + j] -= rate * (step + u.weight_decay * p[i * columns + j]);
    }
  }
}

void element(const kernels::OwnUpdate& u) {
  const double begun = 1 - u.beta2_power;
  for (int64_t i = 0; i < u.count; ++i) {
    const float g = u.gradient[i] * u.clip;
    float& v = u.state[0][i];
    v = u.beta2 * v + (1 - u.beta2) * g * g;
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(v) / begun));
    u.master[i] -= u.rate * (g / (root + u.epsilon) + u.weight_decay * u.master[i]);
  }
}

}  // namespace

lockstep::optim::OptimizerKind factored() {
  return {.name = "factored",
          .describe = "second moments by row and column",
          .reads = {"optim.beta2", "optim.epsilon"},
          .own = element,
          .constants =
              [](const recipe::Recipe::Optim& o) {
                return optim::RuleConstants{.beta2 = o.beta2, .epsilon = o.epsilon};
              },
          .state = state,
          .needs_whole = is_matrix,
          .whole = matrix};
}

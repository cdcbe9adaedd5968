#include "lockstep/model/segments/activation.h"

namespace lockstep::model {

namespace {

using kernels::ActivationKind;

struct Row {
  const char* name;
  ActivationKind kind;
};
constexpr Row kRows[] = {
    {"gelu", ActivationKind::gelu_erf},
    {"gelu_python", ActivationKind::gelu_erf},
    {"gelu_new", ActivationKind::gelu_tanh},
    {"gelu_fast", ActivationKind::gelu_tanh},
    {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
    {"gelu_python_tanh", ActivationKind::gelu_tanh},
    {"gelu_accurate", ActivationKind::gelu_tanh},
    {"quick_gelu", ActivationKind::gelu_sigmoid},
    {"relu", ActivationKind::relu},
    {"relu2", ActivationKind::relu_squared},
    {"silu", ActivationKind::silu},
    {"swish", ActivationKind::silu},
};

}  // namespace

std::optional<ActivationKind> activation_named(const std::string& name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.kind;
  }
  return std::nullopt;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

}  // namespace lockstep::model

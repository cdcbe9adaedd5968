#include "lockstep/model/segments/activation.h"

#include "lockstep/base/error.h"

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

std::string activation_names() {
  std::string names;
  for (const Row& row : kRows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

const char* usual_activation(const std::string& family) { return family == "llama" ? "silu" : "gelu_new"; }

std::string activation_name(const recipe::Recipe::Model& model) {
  return model.activation == "auto" ? usual_activation(model.family) : model.activation;
}

ActivationKind activation_of(const recipe::Recipe::Model& model) {
  const std::optional<ActivationKind> kind = activation_named(activation_name(model));
  LS_ASSERT(kind.has_value(), "no activation " + model.activation);
  return *kind;
}

}  // namespace lockstep::model

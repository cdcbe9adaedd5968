// Nonlinearities by the names that transformers gives them. Several names mean one function: gelu_new,
// gelu_fast and gelu_pytorch_tanh differ in how they round.
#pragma once

#include <optional>
#include <string>

#include "lockstep/kernels/elementwise/activation.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::model {

std::optional<kernels::ActivationKind> activation_named(const std::string& name);  // none: not known here
std::string activation_names();                                                    // "gelu, gelu_new, ..."
const char* usual_activation(
    const std::string& family);  // what "auto" means: silu for llama, gelu_new otherwise

// Of model.activation.
kernels::ActivationKind activation_of(const recipe::Recipe::Model& model);
std::string activation_name(const recipe::Recipe::Model& model);  // as transformers reads it: never "auto"

}  // namespace lockstep::model

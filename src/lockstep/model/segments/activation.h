// Nonlinearities by the names that transformers gives them. Several names mean one function: gelu_new,
// gelu_fast and gelu_pytorch_tanh differ in how they round.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/kernels/elementwise/activation.h"

namespace lockstep::model {

std::optional<kernels::ActivationKind> activation_named(const std::string& name);  // none: not known here
std::vector<std::string> activation_names();                                       // "gelu", "gelu_new", ...

}  // namespace lockstep::model

// Parameter groups: from patterns of names in the recipe to how each parameter of a model is trained.
//
// tune.train and tune.freeze say what is trained at all, optim.layer_lr_decay and optim.groups with which
// rate, decay and rule. With tune.method = lora only adapters are trained, and what tune.train names beside
// them. A tied tensor has two names and is one: what is said of either is said of both.
// Weights that one product reads (Llama's q, k and v) are treated alike or refused.
#pragma once

#include "lockstep/model/block.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/program/compile.h"

namespace lockstep::run {

// ConfigError 190 where a pattern matches nothing, 191 where nothing is left to train, 192 where weights of
// one product are treated differently, 193 where a rule needs whole a parameter that tensor ranks cut.
void assign_groups(model::Model& model, const recipe::Recipe& recipe, const optim::Optimizer& optimizer);

// What each of the optimizer's rules keeps, with moments of this type.
std::vector<program::StateRule> state_rules(const optim::Optimizer& optimizer, device::DType moments,
                                            const kernels::Kernels& kernels);

}  // namespace lockstep::run

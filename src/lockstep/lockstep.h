// Lockstep as a library: what a C++ program needs to train its own model on its own data.
//
//     namespace ls = lockstep;
//     ls::recipe::Resolved recipe = ls::recipe::read_recipe({.overrides = {"run.steps=200",
//     "batch.slices=4"}}); const auto world = ls::launch::join();  // one of several under `lockstep launch`
//     or torchrun ls::run::Ranks ranks(*world); ls::run::Plan plan = ls::run::make_plan(std::move(recipe),
//     {.dataset = ..., .build_model = ...},
//                                             ls::run::for_this(ranks));
//     ls::run::Session session(std::move(plan), &ranks);
//     ls::run::Summary summary = ls::run::train(session, {}, observer);
//
// Needs nothing of LibTorch. A model made of torch::nn::Module comes from
// lockstep/model/modules/autograd_torch.h, which does: find_package(lockstep) gives lockstep::lockstep for
// this header and lockstep::torch for that one.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/launch/start.h"
#include "lockstep/model/block.h"
#include "lockstep/model/segments/parts.h"
#include "lockstep/recipe/recipe.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/session/session.h"
#include "lockstep/run/training/trainer.h"

// Lockstep as a library: what a C++ program needs to train its own model on its own data.
//
//     namespace ls = lockstep;
//     ls::TrainResult result = ls::train(ls::recipe::read_recipe({.file = "mine.toml"}),
//                                        {.model = ..., .data = ..., .observer = ...});   // lockstep/train.h
//
// train() is all that `lockstep train` is. Below it lie a plan, a session and the loop, for programs that
// want to do something else with them:
//
//     const auto world = ls::launch::join();  // one of several under `lockstep launch` or torchrun
//     ls::run::Ranks ranks(*world);
//     ls::run::Session session(ls::run::make_plan(recipe, {.dataset = ..., .build_model = ...},
//                                                 ls::run::for_this(ranks)), &ranks);
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
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/session/session.h"
#include "lockstep/train.h"

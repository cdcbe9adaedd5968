// What this program adds to Lockstep: a file and a row each.
#pragma once

#include "lockstep/comm/engine.h"
#include "lockstep/data/kind.h"
#include "lockstep/model/families/family.h"
#include "lockstep/optim/optimizer.h"

lockstep::model::Family gated_family();       // gated.cc: model.family = "gated"
lockstep::data::DatasetKind counting_data();  // counting.cc: data.kind = "counting"
lockstep::optim::OptimizerKind heavy_ball();  // heavy_ball.cc: optim.name = "heavy_ball"
lockstep::optim::OptimizerKind factored();    // factored.cc: optim.name = "factored"
lockstep::comm::Engine mailbox_engine();      // mailbox.cc: parallel.engine = "mailbox"

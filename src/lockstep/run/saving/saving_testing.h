// A session that is trained from a checkpoint, or to one: what the tests of checkpoints share.
#pragma once

#include <memory>
#include <string>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/load.h"

namespace lockstep::run {

// From `from` (empty: from the start); with `save_in`, saves after `stop` steps.
inline Summary train_and_save(Session& session, const std::string& from, const std::string& save_in,
                              int64_t stop, Observer& observer) {
  std::unique_ptr<Saver> saver;
  TrainOptions options;
  if (!save_in.empty()) {
    saver = std::make_unique<Saver>(session, save_in);
    options.save_every = stop;
    options.save = [&](int64_t step) { saver->save(step); };
  }
  if (!from.empty()) options.first_step = load_checkpoint(session, from);
  Summary summary = train(session, options, observer);
  if (saver) saver->finish();
  return summary;
}

}  // namespace lockstep::run

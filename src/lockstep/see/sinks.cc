#include "lockstep/see/sink.h"

namespace lockstep::see {

const std::vector<SinkKind>& sink_kinds() {
  static const std::vector<SinkKind> kinds = {
      {"csv", "one row per logged step, for pandas and spreadsheets", "-", open_csv},
      {"tensorboard", "event files for `tensorboard --logdir DIR`: scalars, the recipe, hparams",
       "tensorboard", open_tensorboard},
  };
  return kinds;
}

}  // namespace lockstep::see

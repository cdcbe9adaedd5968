#include "lockstep/see/sink.h"

namespace lockstep::see {

const std::vector<SinkKind>& sink_kinds() {
  static const std::vector<SinkKind> kinds = {
      {"csv", "one row per logged step, for pandas and spreadsheets", "-", true, open_csv},
      {"tensorboard",
       "event files for `tensorboard --logdir DIR`: scalars, histograms of gradients, the recipe, hparams",
       "tensorboard", false, open_tensorboard},
      {"mlflow", "a file store for `mlflow ui`: metrics, the recipe's keys as parameters", "mlruns", false,
       open_mlflow},
      {"wandb", "an offline folder for `wandb sync DIR/offline-run-*`: history, the recipe as config",
       "wandb", false, open_wandb},
      {"prometheus", "the newest values and every rank, for node_exporter's textfile collector", "-", true,
       open_prometheus},
  };
  return kinds;
}

}  // namespace lockstep::see

#include "lockstep/training/remarks.h"

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/launch/process/rank_memory.h"
#include "lockstep/run/folder/run_folder.h"
#include "lockstep/run/loop/remarks.h"

namespace lockstep::training {

namespace {

int64_t step_of(const std::string& checkpoint) {
  try {
    return checkpoint::read_manifest(checkpoint).step;
  } catch (const base::Error&) {  // a folder of weights alone
    return 0;
  }
}

}  // namespace

void say_planned(const Planned& planned, const Request& request) {
  const run::Plan& plan = planned.plan;
  if (planned.only_saves) return request.observer.planned(planned);
  if (const std::string gpu = run::unused_gpu(plan); !gpu.empty()) request.observer.warn(gpu);
  request.observer.planned(planned);
  const recipe::Circumstances circumstances{
      .recipe = plan.recipe(),
      .ranks = plan.seat.world,
      .nodes = plan.seat.nodes,
      .gpu = plan.device->id().kind == device::Kind::cuda,
      .launched = launch::under_launcher(),
      .evaluates = plan.dataset->samples(data::Split::eval) > 0,
      .folder_given = !request.options.folder.empty(),
  };
  for (const std::string& line : run::remarks_on(plan, circumstances)) request.observer.warn(line);
}

std::string change_of_length(const recipe::Recipe& now, const std::vector<std::string>& checkpoints,
                             int64_t step) {
  for (const std::string& folder : checkpoints) {
    if (step == 0 || step_of(folder) != step) continue;
    const std::optional<recipe::Recipe> before = run::recipe_of(folder);
    return before ? run::schedule_change(*before, now, step) : "";
  }
  return "";
}

}  // namespace lockstep::training

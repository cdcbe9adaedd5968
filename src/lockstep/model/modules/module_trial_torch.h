// A forward and backward of a module on zeros, on the device that it will train on, to learn what its graph
// holds before anything is trained.
#pragma once

#include "lockstep/model/modules/module_torch.h"

namespace lockstep::model {

struct Trial {
  int64_t kept_bytes = 0;      // by the graph and the output, from forward to backward
  int64_t forward_bytes = 0;   // more than that, while forward runs
  int64_t backward_bytes = 0;  // more than that, while backward runs
};

// The module is left as it was. ConfigError 173 when it fails, gives another shape than `out` or writes to
// its input.
Trial try_module(const AutogradOptions& options, const ModuleValues& values, int64_t samples,
                 at::Device where);

}  // namespace lockstep::model

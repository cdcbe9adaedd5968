#include "lockstep/model/modules/torch_cuda.h"

#include <dlfcn.h>

namespace lockstep::model {

// The library that Gloo is loaded from has the name too, but keeps it to itself (RTLD_LOCAL).
void load_torch_cuda_where_linked() {
  using Load = void (*)();
  if (const auto load = reinterpret_cast<Load>(::dlsym(RTLD_DEFAULT, "lockstep_load_torch_cuda"))) load();
}

}  // namespace lockstep::model

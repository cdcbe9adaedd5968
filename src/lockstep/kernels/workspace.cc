#include "lockstep/kernels/workspace.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::kernels {

void require_workspace(const Launch& launch, int64_t bytes, const char* operation) {
  LS_ASSERT(
      bytes == 0 || (launch.workspace != nullptr && launch.workspace_bytes >= bytes),
      fmt::format("{} needs {} bytes of workspace, {} given", operation, bytes, launch.workspace_bytes));
}

}  // namespace lockstep::kernels

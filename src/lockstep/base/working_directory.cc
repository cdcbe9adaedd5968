#include "lockstep/base/working_directory.h"

#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::base {

void require_working_directory() {
  std::error_code gone;
  static_cast<void>(std::filesystem::current_path(gone));
  if (gone) throw IoError(820, "the working directory no longer exists: change to another one");
}

}  // namespace lockstep::base

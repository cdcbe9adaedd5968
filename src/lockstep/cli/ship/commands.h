// Commands that take the program elsewhere: as one file, or as an image.
#pragma once

#include "lockstep/cli/arguments.h"

namespace lockstep::cli {

int bundle_command(Arguments& arguments);
int image_command(Arguments& arguments);

}  // namespace lockstep::cli

// A container image of the program: a Dockerfile over a bundle (bundle.h).
//
// The base is a plain distribution as new as the bundle needs. For GPUs too: CUDA's libraries are in the
// bundle, and the driver's come from the host, through the container toolkit, so that nothing of a gigabyte
// of CUDA base is wanted.
#pragma once

#include <string>

#include "lockstep/ship/bundle.h"

namespace lockstep::ship {

struct ImageOptions {
  std::string bundle;  // its file name in the build folder, .tar.gz: what every engine unpacks
  std::string folder;  // of the bundle: "lockstep-0.1.0"
  Version glibc = {0, 0};
  bool cuda = false;
};

std::string base_image(
    const Version& glibc);  // "debian:12.11-slim"; ConfigError 753 where no base is new enough
std::string dockerfile(const ImageOptions& options);

}  // namespace lockstep::ship

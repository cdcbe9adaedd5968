#include "lockstep/ship/image.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"

namespace lockstep::ship {

namespace {

// By the C library that they come with, oldest first.
struct Base {
  const char* name;
  Version glibc;
};
constexpr Base kBases[] = {{"debian:12.11-slim", {2, 36}}, {"debian:13.1-slim", {2, 41}}};

}  // namespace

std::string base_image(const Version& glibc) {
  for (const Base& base : kBases) {
    if (base.glibc >= glibc) return base.name;
  }
  throw base::ConfigError(
      753, fmt::format("this program needs glibc {}.{}, newer than any base image that is known "
                       "here; build it on Debian 12",
                       glibc.first, glibc.second));
}

std::string dockerfile(const ImageOptions& options) {
  const char* gpu =
      "# The host's driver is mounted by the container toolkit: docker run --gpus all ...\n"
      "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility\n";
  return fmt::format(
      R"docker(# Written by `lockstep image`. Build: docker build -t lockstep:{version} .
FROM {base}
LABEL org.opencontainers.image.title="lockstep" org.opencontainers.image.version="{version}" org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates tini && rm -rf /var/lib/apt/lists/*
ADD {bundle} /opt/
RUN ln -s /opt/{folder}/bin/lockstep /usr/local/bin/lockstep && useradd --uid 1000 --create-home lockstep && install -d -o 1000 -g 1000 /work
{gpu}USER 1000:1000
WORKDIR /work
# tini ends what a rank leaves behind, and passes SIGTERM on: the run saves and ends with 75.
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["lockstep", "train"]
)docker",
      fmt::arg("version", base::kVersion), fmt::arg("base", base_image(options.glibc)),
      fmt::arg("bundle", options.bundle), fmt::arg("folder", options.folder),
      fmt::arg("gpu", options.cuda ? gpu : ""));
}

}  // namespace lockstep::ship

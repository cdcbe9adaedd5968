// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::ship {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {750,
       "Unknown kind of archive",
       {"--out names a file whose ending is not that of an archive that can be written."},
       {"End it with .tar.zst (smallest), .tar.gz (every machine unpacks it) or .tar."}},
      {751,
       "Program or library cannot be read",
       {"A file of the installation is truncated or of another kind of machine."},
       {"Install the program again, or build it again."}},
      {752,
       "Library missing for a bundle",
       {"--cuda was given, but this build has no CUDA plugin, or CUDA's libraries are not installed.",
        "A library that the program needs is not where LibTorch is."},
       {"Run `lockstep setup`, or install the wheel with all it depends on.", "Leave --cuda out."}},
      {753,
       "No image for this device",
       {"--for names a device that the program does not run on, or none of the catalogue."},
       {"Use --for cpu, or an NVIDIA GPU that `lockstep prices` lists, such as h100."}},
      {754,
       "Image cannot be built here",
       {"--build was given, but neither docker nor podman nor buildah answers on this machine.",
        "The engine failed; its own words are above."},
       {"Take the folder to a machine with an engine and run the command that was printed."}},
  };
}

}  // namespace lockstep::ship

// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::device {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {401, "Not a device", {"run.device is misspelled."}, {"Use auto, cpu, cuda or cuda:N."}},
      {402,
       "CUDA not available",
       {"No NVIDIA driver, one older than 580, no visible GPU, a GPU older than compute capability 7.5, or "
        "the plugin is not built."},
       {"`lockstep doctor` tells which; `./lockstep setup --cuda` builds the plugin.",
        "Set run.device=cpu or auto to train without a GPU."}},
      {403,
       "GPU not found",
       {"The number exceeds the GPUs available to this process."},
       {"Use a smaller number; check CUDA_VISIBLE_DEVICES."}},
      {404,
       "Unusable CUDA plugin",
       {"It is from a different build, or a library it needs is missing."},
       {"Run `./lockstep setup --cuda` again."}},
      {407,
       "Device of a kind that is not supported",
       {"run.device names AMD's, Intel's or Apple's GPUs, or a TPU. The message has the row of the table in "
        "docs/install.md: "
        "what is compiled for it, what has run, and why it is refused."},
       {"Set run.device=cpu, or use an NVIDIA GPU."}},
      {406,
       "Cannot load LibTorch",
       {"liblockstep_torch.so is not next to liblockstep.so.",
        "libtorch_cpu.so is not where it was when Lockstep was built.",
        "PyTorch is of another version than the one that Lockstep was built for."},
       {"`lockstep doctor` says which it is, and how to install the right one.",
        "Add the folder of libtorch_cpu.so to LD_LIBRARY_PATH."}},
      {410,
       "CUDA call failed",
       {"The driver or the GPU reported an error."},
       {"See `nvidia-smi` and the kernel log; try another GPU."}},
      {412,
       "Cannot pin host memory",
       {"The locked-memory limit is too low, or memory is scarce."},
       {"Raise `ulimit -l`, or free memory."}},
      {430,
       "Not a binding",
       {"--numa-binding is misspelled."},
       {"Use none, node, socket or core-complex; `lockstep topo` shows what each means on this machine."}},
      {431,
       "Processors not available to this job",
       {"The scheduler or container gives this job only processors far from the rank's GPU."},
       {"Request processors on every NUMA node that has one of the job's GPUs.",
        "Omit --numa-binding; `lockstep topo` shows which processors are near and usable."}},
      {432,
       "Cannot pin to these processors",
       {"They went offline, or the cgroup shrank, after the job started.",
        "A sandbox forbids sched_setaffinity."},
       {"Omit --numa-binding.", "`lockstep topo` shows which processors are usable."}},
  };
}

}  // namespace lockstep::device

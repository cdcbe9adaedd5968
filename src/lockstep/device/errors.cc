// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::device {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {401, "Not a device", {"run.device is misspelt."}, {"Use auto, cpu, cuda or cuda:N."}},
      {402,
       "CUDA cannot be used here",
       {"No NVIDIA driver, one older than 580, no visible GPU, a GPU older than compute capability 7.5, or "
        "the plugin is not built."},
       {"`lockstep doctor` says which; `./lockstep setup --cuda` builds the plugin.",
        "run.device=cpu, or auto, trains without a GPU."}},
      {403,
       "No such GPU",
       {"The number is beyond the GPUs that this process may use."},
       {"Use a smaller number; check CUDA_VISIBLE_DEVICES."}},
      {404,
       "A CUDA plugin that cannot be used",
       {"It belongs to another build, or a library that it needs is missing."},
       {"Run `./lockstep setup --cuda` again."}},
      {406,
       "LibTorch, or the library that calls it, cannot be loaded",
       {"liblockstep_torch.so does not lie beside liblockstep.so.",
        "libtorch_cpu.so is not where it was when Lockstep was built."},
       {"Run `lockstep setup`.", "Put the folder of libtorch_cpu.so into LD_LIBRARY_PATH."}},
      {410,
       "A CUDA call that failed",
       {"The driver or the GPU reported an error."},
       {"See `nvidia-smi` and the kernel's log; try again on another GPU."}},
      {412,
       "Host memory that cannot be pinned",
       {"The limit on locked memory is too low, or memory is short."},
       {"Raise `ulimit -l`, or free memory."}},
      {430,
       "Not a binding",
       {"--numa-binding is misspelt."},
       {"Use none, node, socket or core-complex; `lockstep topo` shows what each is on this machine."}},
      {431,
       "A rank's processors are not this job's",
       {"The scheduler or container gives this job only processors that are far from the rank's GPU."},
       {"Ask the scheduler for processors of every NUMA node that has one of the job's GPUs.",
        "Leave --numa-binding out; `lockstep topo` shows which processors are near and usable."}},
      {432,
       "Processors that cannot be bound to",
       {"They went offline, or the control group shrank, after the job started.",
        "A sandbox forbids sched_setaffinity."},
       {"Leave --numa-binding out.", "`lockstep topo` shows which processors are usable."}},
  };
}

}  // namespace lockstep::device

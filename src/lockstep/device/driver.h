// The CUDA driver, opened at run time and started before the plugin is: its two slow calls, which need none
// of our libraries and can therefore run while those are loaded.
#pragma once

namespace lockstep::device {

class Driver {
 public:
  // Starts the driver. False where there is none, or it is older than the plugin needs.
  bool start();
  // Whether the visible GPU `index` is there and new enough; all before it must be as well.
  bool accepts(int index) const;
  // The context that the CUDA runtime will use on that GPU, kept until the process ends. What goes wrong here
  // the runtime meets again, and says.
  void make_context(int index) const;

 private:
  // libcuda's C interface; every function returns 0 when it succeeded.
  int (*count_)(int*) = nullptr;
  int (*device_)(int*, int) = nullptr;
  int (*attribute_)(int*, int, int) = nullptr;
  int (*retain_)(void**, int) = nullptr;
};

}  // namespace lockstep::device

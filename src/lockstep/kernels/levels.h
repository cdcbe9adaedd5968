// The CPU tables, one for each instruction set that src/lockstep/CMakeLists.txt compiles *_cpu.cc for.
// kernels_for() picks among them; only tests name one.
#pragma once

namespace lockstep::kernels {

struct Kernels;

#if defined(__x86_64__)
namespace cpu_v3 {
const Kernels& table();
}
namespace cpu_v4 {
const Kernels& table();
}
#else
namespace cpu_generic {
const Kernels& table();
}
#endif

}  // namespace lockstep::kernels

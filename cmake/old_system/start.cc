// Programs made for glibc before 2.34 brought along the loop over their own constructors, and such systems
// rely on it. The start that the compiler links names none; newer systems take one that is named.
#include <dlfcn.h>

#include <cstddef>

extern "C" {

using Main = int(int, char**, char**);
using Construct = void(int, char**, char**);

#pragma GCC visibility push(hidden)

extern Construct* __preinit_array_start[];
extern Construct* __preinit_array_end[];
extern Construct* __init_array_start[];
extern Construct* __init_array_end[];
void _init();

static void construct(int count, char** words, char** environment) {
  for (Construct** one = __preinit_array_start; one < __preinit_array_end; ++one)
    (*one)(count, words, environment);
  _init();
  for (Construct** one = __init_array_start; one < __init_array_end; ++one) (*one)(count, words, environment);
}

// Before main() and before any constructor of the program's, but behind those of its libraries.
int __libc_start_main(Main* main, int count, char** words, Construct* init, void (*fini)(), void (*unload)(),
                      void* stack) {
  using Start = int(Main*, int, char**, Construct*, void (*)(), void (*)(), void*);
  auto* const start = reinterpret_cast<Start*>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(main, count, words, init != nullptr ? init : construct, fini, unload, stack);
}

#pragma GCC visibility pop
}

# LibTorch's CPU half, as the PyPI wheel lays it out: LOCKSTEP_TORCH is the folder that holds lib/ and include/.
set(LOCKSTEP_TORCH "$ENV{LOCKSTEP_TORCH}" CACHE PATH "Folder of PyTorch 2.11 (holds lib/libtorch_cpu.so)")
if(NOT LOCKSTEP_TORCH)
  set(LOCKSTEP_TORCH "${CMAKE_CURRENT_SOURCE_DIR}/.deps/site/torch")
endif()
if(NOT EXISTS "${LOCKSTEP_TORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No LibTorch in ${LOCKSTEP_TORCH}: run ./lockstep setup, or set LOCKSTEP_TORCH to a PyTorch 2.11 folder")
endif()
get_filename_component(LOCKSTEP_SITE "${LOCKSTEP_TORCH}/.." ABSOLUTE)

# Headers apart from the library: they bring a {fmt} of their own, which only *_torch.cc files may see.
add_library(lockstep_torch_headers INTERFACE)
target_include_directories(lockstep_torch_headers SYSTEM INTERFACE
  "${LOCKSTEP_TORCH}/include" "${LOCKSTEP_TORCH}/include/torch/csrc/api/include")
# Where LibTorch lies, for what opens it at run time. DT_RPATH, not RUNPATH: libtorch_cpu.so must find libcudart
# and libgomp through us as well.
add_library(lockstep_torch_path INTERFACE)
target_link_options(lockstep_torch_path INTERFACE
  "LINKER:--disable-new-dtags,--allow-shlib-undefined,-rpath,${LOCKSTEP_TORCH}/lib,-rpath,${LOCKSTEP_SITE}/nvidia/cu13/lib")
add_library(lockstep_torch INTERFACE)
target_link_libraries(lockstep_torch INTERFACE lockstep_torch_path
  "${LOCKSTEP_TORCH}/lib/libtorch_cpu.so" "${LOCKSTEP_TORCH}/lib/libc10.so" "${LOCKSTEP_TORCH}/lib/libgomp.so.1")

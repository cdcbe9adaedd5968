# liblockstep_cuda.so: everything that knows CUDA, loaded by the library when a driver is present.
# It needs libcudart and libcublasLt, which lie beside LibTorch (nvidia/cu13/lib) when a GPU is set up.
set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;90-real;90-virtual" CACHE STRING
  "GPU architectures to compile for; newer GPUs translate the last, virtual, one when they first load it")
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old: LibTorch is built for CUDA 13, set CUDACXX to its nvcc")
endif()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

# Attention goes through cuDNN where its headers are found; the library itself is opened at run time.
find_path(LOCKSTEP_CUDNN_INCLUDE cudnn.h HINTS ${LOCKSTEP_SITE}/nvidia/cudnn/include ${CUDAToolkit_INCLUDE_DIRS})
find_path(LOCKSTEP_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${LOCKSTEP_SITE}/include)

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS kernels/*.cu device/cuda/*.cc kernels/cublas/*.cc kernels/cudnn/*.cc
  kernels/flash/*.cc)
if(LOCKSTEP_CUDNN_INCLUDE AND LOCKSTEP_CUDNN_FRONTEND_INCLUDE)
  list(FILTER cuda_sources EXCLUDE REGEX "_none\\.cc$")
else()
  list(FILTER cuda_sources EXCLUDE REGEX "cudnn/(library|attention_plan)\\.cc$")
  message(STATUS "cuDNN's headers are not here: attention will take our own, slower kernels")
endif()
add_library(lockstep_cuda SHARED ${cuda_sources})
set_target_properties(lockstep_cuda PROPERTIES
  CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Shared BUILD_RPATH "\$ORIGIN")
target_compile_options(lockstep_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all>)
# Errors and names come from liblockstep.so, which is there before the plugin is.
target_link_libraries(lockstep_cuda PRIVATE lockstep lockstep_flags CUDA::cublasLt fmt::fmt-header-only)
if(LOCKSTEP_CUDNN_INCLUDE AND LOCKSTEP_CUDNN_FRONTEND_INCLUDE)
  set_source_files_properties(kernels/cudnn/library.cc kernels/cudnn/attention_plan.cc PROPERTIES
    INCLUDE_DIRECTORIES "${LOCKSTEP_CUDNN_FRONTEND_INCLUDE};${LOCKSTEP_CUDNN_INCLUDE}" COMPILE_OPTIONS -w)
endif()
# DT_RPATH as for LibTorch, so that libcublasLt finds its neighbours through us.
target_link_options(lockstep_cuda PRIVATE
  "LINKER:--disable-new-dtags,-z,defs,-rpath,${LOCKSTEP_SITE}/nvidia/cu13/lib")

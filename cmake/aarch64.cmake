# Cross build for aarch64 with Debian's g++-aarch64-linux-gnu: LOCKSTEP_CROSS_ROOT holds the libraries of that architecture
# (tools/cross.sh unpacks them). Tests run under qemu-user where it is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LOCKSTEP_CROSS_ROOT)

set(CMAKE_FIND_ROOT_PATH ${LOCKSTEP_CROSS_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

find_program(LOCKSTEP_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(LOCKSTEP_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${LOCKSTEP_QEMU} -L /usr/aarch64-linux-gnu)
endif()

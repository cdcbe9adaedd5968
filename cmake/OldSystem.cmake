# What is installed runs with glibc 2.28 and GCC 8's libstdc++ and everything newer (manylinux_2_28: Red Hat 8, Debian 10, Ubuntu
# 18.10), whatever it is compiled on: it is linked against stand-ins for those libraries (tools/old_system.py), and what they lack
# comes along (cmake/old_system, libstdc++.a). Tests are linked as usual, so they meet these files as a user's programs do.
option(LOCKSTEP_OLD_SYSTEM "Link for glibc 2.28 and newer" ON)
set(old_system_folder ${CMAKE_BINARY_DIR}/old_system)
set(old_system_maker ${PROJECT_SOURCE_DIR}/tools/old_system.py)
if(LOCKSTEP_SANITIZE OR CMAKE_SYSROOT OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR) OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU OR NOT CMAKE_SYSTEM_NAME STREQUAL Linux)
  set(LOCKSTEP_OLD_SYSTEM OFF)
endif()
if(LOCKSTEP_OLD_SYSTEM)
  file(GLOB old_system_sources ${PROJECT_SOURCE_DIR}/cmake/old_system/*.cc)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${old_system_maker} ${old_system_sources})
  execute_process(COMMAND python3 -B ${old_system_maker} ${old_system_folder} --compiler ${CMAKE_CXX_COMPILER} --objdump ${CMAKE_OBJDUMP}
    --emulator "${CMAKE_CROSSCOMPILING_EMULATOR}" --glibc 2.28 --stdcxx 3.4.24 --cxxabi 1.3.11 --probe ${old_system_sources} RESULT_VARIABLE old_system_failed ERROR_VARIABLE old_system_why)
  if(old_system_failed)
    message(WARNING "Linked for this system and newer ones only: ${old_system_why}")
    set(LOCKSTEP_OLD_SYSTEM OFF)
  endif()
endif()

# lockstep_runs_on_old_systems(TARGET...)
function(lockstep_runs_on_old_systems)
  if(NOT LOCKSTEP_OLD_SYSTEM)
    return()
  endif()
  foreach(target ${ARGN})
    set(files ${PROJECT_SOURCE_DIR}/cmake/old_system/missing.cc)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      list(APPEND files ${PROJECT_SOURCE_DIR}/cmake/old_system/start.cc)
    else()  # else what nobody has would be asked for without a version, and found wherever it was compiled
      target_link_options(${target} PRIVATE LINKER:-z,defs)
    endif()
    target_sources(${target} PRIVATE ${files})
    set_source_files_properties(${files} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    # An option, because the folder is for linking: a link directory would be looked into at run time too.
    target_link_options(${target} PRIVATE -L${old_system_folder} "LINKER:--exclude-libs,libstdc++.a" "LINKER:--no-as-needed")
    target_link_libraries(${target} PRIVATE pthread dl rt)  # older systems have them apart from libc
  endforeach()
endfunction()

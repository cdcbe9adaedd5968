# cmake --install build --prefix X: the program, the library, its headers and find_package(lockstep).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The installed files find each other; the LibTorch they were linked with is in their RPATH already.
set(lockstep_rpath "\$ORIGIN;\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
set_target_properties(lockstep lockstep_with_torch lockstep_program PROPERTIES INSTALL_RPATH "${lockstep_rpath}")
install(TARGETS lockstep lockstep_with_torch EXPORT lockstep-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lockstep_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET lockstep_with_stores)
  set_target_properties(lockstep_with_stores PROPERTIES INSTALL_RPATH "${lockstep_rpath}")
  install(TARGETS lockstep_with_stores LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET lockstep_with_arrow)
  set_target_properties(lockstep_with_arrow PROPERTIES INSTALL_RPATH "${lockstep_rpath}")
  install(TARGETS lockstep_with_arrow LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET lockstep_cuda)
  set_target_properties(lockstep_cuda PROPERTIES INSTALL_RPATH "${lockstep_rpath}")
  install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # Compiled on this machine by set-up, where it has a Hopper GPU.
  install(FILES $<TARGET_FILE_DIR:lockstep_cuda>/liblockstep_flash.so DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstep-config.cmake.in
  ${CMAKE_BINARY_DIR}/lockstep-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lockstep-config.cmake ${CMAKE_BINARY_DIR}/lockstep-config-version.cmake
  DESTINATION ${package_dir})

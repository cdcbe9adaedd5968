# Arrow's C++ libraries, as PyPI's pyarrow wheel brings them: LOCKSTEP_ARROW is the folder that holds libarrow.so.* and
# include/. Optional: without them Parquet and Arrow files are refused.
set(LOCKSTEP_ARROW "" CACHE PATH "Folder of pyarrow (holds libarrow.so.* and include/arrow)")
set(arrow_folder "${LOCKSTEP_ARROW}")
if(NOT arrow_folder)
  set(arrow_folder "${PROJECT_SOURCE_DIR}/.deps/site/pyarrow")
endif()
file(GLOB arrow_library "${arrow_folder}/libarrow.so.[0-9]*")
file(GLOB parquet_library "${arrow_folder}/libparquet.so.[0-9]*")
list(LENGTH arrow_library found)
if(found EQUAL 1 AND parquet_library AND EXISTS "${arrow_folder}/include/arrow/api.h")
  add_library(lockstep_arrow_libraries INTERFACE)
  target_include_directories(lockstep_arrow_libraries SYSTEM INTERFACE "${arrow_folder}/include")
  target_link_libraries(lockstep_arrow_libraries INTERFACE "${arrow_library}" "${parquet_library}")
  target_link_options(lockstep_arrow_libraries INTERFACE
    "LINKER:--disable-new-dtags,--allow-shlib-undefined,-rpath,${arrow_folder}")
else()
  message(STATUS "No Arrow in ${arrow_folder}: Parquet and Arrow files will be refused")
endif()

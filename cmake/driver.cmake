# SPDX-License-Identifier: Apache-2.0
# npu_add_driver(name SOURCES ...): a driver library libnpu_<name>.so that sees
# only the contract. Used in the tree and, once installed, by vendors.
set(NPU_DRIVER_OUTPUT_DIR ${CMAKE_BINARY_DIR}/drivers CACHE PATH
    "Where driver libraries are put")
find_package(Threads REQUIRED)

function(npu_add_driver name)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "npu_add_driver(${name}): SOURCES is missing")
  endif()
  add_library(npu_${name} MODULE ${arg_SOURCES})
  if(TARGET npu_contract)
    target_link_libraries(npu_${name} PRIVATE npu_contract)
  else()
    target_link_libraries(npu_${name} PRIVATE opennpu::contract)
  endif()
  target_link_libraries(npu_${name} PRIVATE Threads::Threads)
  target_compile_options(npu_${name} PRIVATE -Wall -Wextra)
  target_link_options(npu_${name} PRIVATE
    LINKER:--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/driver_exports.map)
  # MODULE lets missing symbols through until the user loads the driver.
  if(NOT NPU_SANITIZE)
    target_link_options(npu_${name} PRIVATE LINKER:-z,defs)
  endif()
  set_target_properties(npu_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${NPU_DRIVER_OUTPUT_DIR})
endfunction()

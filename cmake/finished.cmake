# SPDX-License-Identifier: Apache-2.0
# The drivers of NPU_DRIVERS_FROM under the names of the targets that would make them: what is tested is what
# was installed, and it is compiled once.
set(NPU_DRIVER_OUTPUT_DIR ${NPU_DRIVERS_FROM})
set(NPU_PACKAGE_DIR torch_npu)
file(GLOB _files ${NPU_DRIVERS_FROM}/libnpu_*.so)
if(NOT _files)
  message(FATAL_ERROR "NPU_DRIVERS_FROM: there is no driver in ${NPU_DRIVERS_FROM}; run make build, or leave the variable out")
endif()
foreach(_file IN LISTS _files)
  cmake_path(GET _file STEM LAST_ONLY _driver)
  string(REGEX REPLACE "^libnpu_" "" _driver ${_driver})
  if(_driver STREQUAL "cuda")
    continue()  # of `make cuda`, not of the package: the tests compile their own
  endif()
  add_library(npu_${_driver} MODULE IMPORTED GLOBAL)
  set_target_properties(npu_${_driver} PROPERTIES IMPORTED_LOCATION ${_file})
endforeach()

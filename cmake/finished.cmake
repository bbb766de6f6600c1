# SPDX-License-Identifier: Apache-2.0
# The drivers of NPU_DRIVERS_FROM under the names of the targets that would make them: what is tested is what
# was installed, and it is compiled once.
set(NPU_DRIVER_OUTPUT_DIR ${NPU_DRIVERS_FROM})
set(NPU_PACKAGE_DIR torch_npu)
foreach(_driver null host)
  set(_file ${NPU_DRIVERS_FROM}/libnpu_${_driver}.so)
  if(NOT EXISTS ${_file})
    message(FATAL_ERROR "NPU_DRIVERS_FROM: there is no ${_file}; run make build, or leave the variable out")
  endif()
  add_library(npu_${_driver} MODULE IMPORTED GLOBAL)
  set_target_properties(npu_${_driver} PROPERTIES IMPORTED_LOCATION ${_file})
endforeach()

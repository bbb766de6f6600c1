# SPDX-License-Identifier: Apache-2.0
# The kit against the drivers of this build: one entry per driver and mode.
set(_preload "")
if(NPU_KIT_FROM)
  add_executable(npu_conformance IMPORTED GLOBAL)
  set_target_properties(npu_conformance PROPERTIES IMPORTED_LOCATION ${NPU_KIT_FROM})
  # A sanitizer has to be loaded before the program that loads an instrumented driver.
  foreach(_sanitizer address thread)
    if(NPU_SANITIZE MATCHES ${_sanitizer})
      string(SUBSTRING ${_sanitizer} 0 1 _letter)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${_letter}san.so
                      OUTPUT_VARIABLE _library OUTPUT_STRIP_TRAILING_WHITESPACE)
      set(_preload "LD_PRELOAD=${_library}")
    endif()
  endforeach()
endif()

# Small memory: a test fills the device.
function(npu_conformance_test name driver)
  cmake_parse_arguments(arg "" "FILTER" "" ${ARGN})
  set(_command npu_conformance --driver $<TARGET_FILE:npu_${driver}> --gtest_brief=1)
  if(arg_FILTER)
    list(APPEND _command --gtest_filter=${arg_FILTER})
  endif()
  add_test(NAME conformance.${name} COMMAND ${_command})
  set_tests_properties(conformance.${name} PROPERTIES
    ENVIRONMENT "NPU_HOST_MEMORY=256M;NPU_HOST_KERNELS=all;${_preload};${arg_UNPARSED_ARGUMENTS}"
    SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS conformance)
  if(NOT NPU_KIT_FROM)
    add_dependencies(npu_conformance npu_${driver})
  endif()
endfunction()

npu_conformance_test(host host)
npu_conformance_test(host-async host NPU_HOST_ASYNC=1)
if(NOT NPU_SANITIZE MATCHES "thread")
  # Devices, protected memory and instruction sets make no difference to what threads share.
  npu_conformance_test(null null)
  npu_conformance_test(host-protect-8 host NPU_HOST_PROTECT=1 NPU_HOST_DEVICES=8)
  # What `host` uses is the best this machine has.
  foreach(isa baseline avx2)
    npu_conformance_test(host-${isa} host NPU_HOST_ISA=${isa})
  endforeach()
endif()

# SPDX-License-Identifier: Apache-2.0
# npu_add_pack(name YAML file SOURCES ... [STABLE]): an operator pack lib<name>.so for the
# PyTorch of the interpreter at hand. The YAML's declarations and registrations are generated.
# STABLE: only PyTorch's stable headers are seen; sources register by npu_stable_pack_add.
if(NOT NPU_PACK_PYTHON)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(NPU_PACK_PYTHON ${Python3_EXECUTABLE})
endif()
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${NPU_PACK_PYTHON} -c
          "import os, torch; print(os.path.dirname(torch.__file__), end='')"
  OUTPUT_VARIABLE _pack_torch RESULT_VARIABLE _pack_rc)
if(NOT _pack_rc EQUAL 0)
  message(FATAL_ERROR "PyTorch is not importable by ${NPU_PACK_PYTHON}: pip install torch")
endif()
set(_pack_root "${CMAKE_CURRENT_LIST_DIR}/../../..")
# torch uses the shared C++ library; there must not be two.
find_library(NPU_PACK_STDCXX NAMES libstdc++.so.6 PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
find_program(NPU_PACK_CCACHE ccache)

function(npu_add_pack name)
  cmake_parse_arguments(arg "STABLE" "YAML" "SOURCES" ${ARGN})
  if(NOT arg_SOURCES OR NOT arg_YAML)
    message(FATAL_ERROR "npu_add_pack(${name}): YAML or SOURCES is missing")
  endif()
  add_library(${name} MODULE ${arg_SOURCES})
  set(made ${CMAKE_CURRENT_BINARY_DIR}/generated)
  if(NOT arg_STABLE)
    get_filename_component(yaml ${arg_YAML} ABSOLUTE)
    add_custom_command(
      OUTPUT ${made}/RegisterNPU.cpp ${made}/torch_npu/csrc/aten/NPUNativeFunctions.h
      COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${NPU_PACK_PYTHON}
              ${_pack_root}/share/opennpu/codegen/aten.py --name ${name}
              --kinds ${_pack_root}/share/opennpu/ops/kinds.yaml --ops ${yaml} --out ${made}
              $<$<BOOL:${NPU_PACK_CACHE}>:--cache> ${NPU_PACK_CACHE}
      DEPENDS ${yaml} COMMENT "${arg_YAML} -> declarations, registrations" VERBATIM)
    target_sources(${name} PRIVATE ${made}/RegisterNPU.cpp)
    target_compile_definitions(${name} PRIVATE AT_PER_OPERATOR_HEADERS)
    target_link_libraries(${name} PRIVATE ${_pack_root}/lib/libtorch_npu.so)
  endif()
  target_include_directories(${name} PRIVATE ${made} ${_pack_root}/include)
  target_include_directories(${name} SYSTEM PRIVATE
    ${_pack_torch}/include ${_pack_torch}/include/torch/csrc/api/include)
  target_link_libraries(${name} PRIVATE
    ${_pack_torch}/lib/libtorch_cpu.so ${_pack_torch}/lib/libc10.so)
  if(NPU_PACK_STDCXX)
    target_link_libraries(${name} PRIVATE ${NPU_PACK_STDCXX})
  endif()
  # MODULE lets missing functions through until the pack is loaded.
  target_link_options(${name} PRIVATE LINKER:-z,defs)
  set_target_properties(${name} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON POSITION_INDEPENDENT_CODE ON
    SKIP_BUILD_RPATH ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  if(NPU_PACK_CCACHE)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER ${NPU_PACK_CCACHE})
  endif()
endfunction()

# SPDX-License-Identifier: Apache-2.0
# npu_contract: include/ plus the headers made from ops/kinds.yaml.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(NPU_GENERATED_DIR ${CMAKE_BINARY_DIR}/generated)
set(_kinds_outputs
    ${NPU_GENERATED_DIR}/include/npu/kinds.h
    ${NPU_GENERATED_DIR}/driver/build_call.h
    ${NPU_GENERATED_DIR}/docs/kinds.md)
add_custom_command(
  OUTPUT ${_kinds_outputs}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/codegen/kinds.py
          --kinds ${CMAKE_SOURCE_DIR}/ops/kinds.yaml --out ${NPU_GENERATED_DIR}
  DEPENDS ${CMAKE_SOURCE_DIR}/codegen/kinds.py ${CMAKE_SOURCE_DIR}/codegen/kinds_model.py ${CMAKE_SOURCE_DIR}/codegen/yaml_reader.py
          ${CMAKE_SOURCE_DIR}/codegen/kinds_emit.py ${CMAKE_SOURCE_DIR}/ops/kinds.yaml
  COMMENT "kinds.yaml -> npu/kinds.h" VERBATIM)
add_custom_target(npu_kinds DEPENDS ${_kinds_outputs})
add_library(npu_contract INTERFACE)
add_dependencies(npu_contract npu_kinds)
target_include_directories(npu_contract INTERFACE ${CMAKE_SOURCE_DIR}/include ${NPU_GENERATED_DIR}/include)

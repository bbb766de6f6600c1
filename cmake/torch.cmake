# SPDX-License-Identifier: Apache-2.0
# The installed PyTorch, asked through the interpreter that will run us.
find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0
          ${Python3_EXECUTABLE} -c "import torch, os; print(os.path.dirname(torch.__file__)); print(torch.__version__)"
  OUTPUT_VARIABLE _torch OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _rc ERROR_VARIABLE _err)
if(NOT _rc EQUAL 0)
  message(FATAL_ERROR "PyTorch is not importable by ${Python3_EXECUTABLE}: install torch first (pip install torch==2.13.0).\n${_err}")
endif()
string(REPLACE "\n" ";" _torch "${_torch}")
list(GET _torch 0 NPU_TORCH_DIR)
list(GET _torch 1 NPU_TORCH_VERSION)
message(STATUS "torch ${NPU_TORCH_VERSION} at ${NPU_TORCH_DIR}")

# Imported by hand: find_package(Torch) drags in CUDA's toolkit in CUDA builds.
function(_npu_torch_lib target file)
  add_library(${target} SHARED IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${NPU_TORCH_DIR}/lib/${file})
endfunction()
_npu_torch_lib(npu_c10 libc10.so)
_npu_torch_lib(npu_torch_cpu libtorch_cpu.so)
_npu_torch_lib(npu_torch_python libtorch_python.so)
add_library(npu_torch INTERFACE)
target_include_directories(npu_torch SYSTEM INTERFACE
  ${NPU_TORCH_DIR}/include ${NPU_TORCH_DIR}/include/torch/csrc/api/include)
target_link_libraries(npu_torch INTERFACE npu_c10 npu_torch_cpu)
# torch uses the shared C++ library. A compiler that would link its static one into us gives the process two of
# them, and the first stream that crosses crashes: name the shared one ahead of it.
find_library(NPU_STDCXX NAMES libstdc++.so.6 PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
if(NPU_STDCXX)
  target_link_libraries(npu_torch INTERFACE ${NPU_STDCXX})
endif()
# ATen's headers bring the operators they use, not all two thousand.
target_compile_definitions(npu_torch INTERFACE NPU_TORCH_VERSION="${NPU_TORCH_VERSION}" AT_PER_OPERATOR_HEADERS)

# npu_torch_headers(target): what nearly every file reads of PyTorch, compiled once for all targets. npu_runtime, the
# lowest of them, owns it. <ATen/ops/empty.h> is there for what every header of an operator brings along.
function(npu_torch_headers target)
  if(target STREQUAL "npu_runtime")
    target_precompile_headers(npu_runtime PRIVATE
      <ATen/core/Tensor.h> <ATen/TensorIterator.h> <ATen/ops/empty.h> <torch/library.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM npu_runtime)
  endif()
endfunction()

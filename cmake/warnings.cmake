# SPDX-License-Identifier: Apache-2.0
# How our own targets are compiled: compiler cache, warnings, and the sanitizers of the torch-free half.
find_program(NPU_CCACHE ccache)
if(NPU_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness ccache passes by every file that a precompiled header serves.
  set(_npu_ccache ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${NPU_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${_npu_ccache})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_npu_ccache})
endif()

# GCC collects its own garbage when its heap has grown past 128 MB, which PyTorch's headers
# make it do again and again. Later and less often: a tenth of the time for a quarter more memory.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=600000>)
endif()

function(npu_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Werror=return-type)
endfunction()

# Tests are compiled more often than run: their own code is not optimised.
function(npu_test_options target)
  npu_warnings(${target})
  target_compile_options(${target} PRIVATE -O0)
endfunction()

if(NPU_SANITIZE)
  string(REPLACE ";" "," _npu_sanitize "${NPU_SANITIZE}")
  add_compile_options(-fsanitize=${_npu_sanitize} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${_npu_sanitize})
endif()

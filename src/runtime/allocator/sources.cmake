# SPDX-License-Identifier: Apache-2.0
# The allocator's files. NPU_ALLOCATOR_SOURCES goes into the runtime; the core
# needs no torch, so its tests build (and run under sanitizers) without it.
set(_dir ${CMAKE_CURRENT_LIST_DIR})
set(NPU_ALLOCATOR_CORE_SOURCES
  ${_dir}/caching_allocator.cpp
  ${_dir}/config.cpp
  ${_dir}/device_pool.cpp
  ${_dir}/device_pool_slow.cpp
  ${_dir}/device_trace.cpp
  ${_dir}/oom.cpp
  ${_dir}/pool.cpp
  ${_dir}/segment_table.cpp
  ${_dir}/trace.cpp)
set(NPU_ALLOCATOR_SOURCES
  ${NPU_ALLOCATOR_CORE_SOURCES}
  ${_dir}/allocator.cpp
  ${_dir}/allocator_api.cpp
  ${_dir}/driver_backend.cpp
  ${_dir}/global.cpp)

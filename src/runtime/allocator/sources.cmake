# SPDX-License-Identifier: Apache-2.0
# The allocator's files. NPU_ALLOCATOR_SOURCES goes into the runtime; the core
# needs no torch, so its tests build (and run under sanitizers) without it.
set(_dir ${CMAKE_CURRENT_LIST_DIR})
set(NPU_ALLOCATOR_CORE_SOURCES
  ${_dir}/caching_allocator.cpp
  ${_dir}/config.cpp
  ${_dir}/device_pool.cpp
  ${_dir}/device_trace.cpp
  ${_dir}/oom.cpp
  ${_dir}/pool.cpp
  ${_dir}/private_pool.cpp
  ${_dir}/segment_table.cpp
  ${_dir}/sweeper.cpp
  ${_dir}/trace.cpp)
set(NPU_ALLOCATOR_SOURCES
  ${NPU_ALLOCATOR_CORE_SOURCES}
  ${_dir}/allocator.cpp
  ${_dir}/allocator_api.cpp
  ${_dir}/driver_backend.cpp
  ${_dir}/global.cpp
  ${_dir}/memory_pools.cpp)

if(NPU_BUILD_TESTS AND NOT TARGET npu_allocator_test)
  find_package(GTest REQUIRED)
  add_executable(npu_allocator_test
    ${NPU_ALLOCATOR_CORE_SOURCES}
    ${_dir}/caching_allocator_test.cpp
    ${_dir}/config_test.cpp
    ${_dir}/private_pool_test.cpp
    ${_dir}/idle_test.cpp
    ${_dir}/stress_test.cpp)
  target_include_directories(npu_allocator_test
    PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(npu_allocator_test PRIVATE GTest::gtest_main)
  npu_test_options(npu_allocator_test)
  add_test(NAME npu_allocator_test COMMAND npu_allocator_test)

  # What a process holds: a sanitizer's own memory would be counted too.
  if(NOT NPU_SANITIZE)
    add_executable(npu_host_memory_test
      ${NPU_ALLOCATOR_CORE_SOURCES} ${_dir}/host_memory_test.cpp)
    target_include_directories(npu_host_memory_test PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(npu_host_memory_test PRIVATE npu_driver_core GTest::gtest_main)
    target_compile_definitions(npu_host_memory_test PRIVATE
      NPU_HOST_DRIVER="$<TARGET_FILE:npu_host>")
    add_dependencies(npu_host_memory_test npu_host)
    npu_test_options(npu_host_memory_test)
    add_test(NAME npu_host_memory_test COMMAND npu_host_memory_test)
  endif()
endif()

if(NOT TARGET npu_bench_allocator)
  add_executable(npu_bench_allocator EXCLUDE_FROM_ALL
    ${NPU_ALLOCATOR_CORE_SOURCES} ${CMAKE_SOURCE_DIR}/benchmarks/allocator.cpp)
  target_include_directories(npu_bench_allocator
    PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  npu_warnings(npu_bench_allocator)
endif()

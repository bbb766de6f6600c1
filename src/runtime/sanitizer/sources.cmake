# SPDX-License-Identifier: Apache-2.0
# The stream sanitizer. The race table needs no torch, so its tests build
# without it.
set(_dir ${CMAKE_CURRENT_LIST_DIR})
set(NPU_SANITIZER_CORE_SOURCES ${_dir}/race_table.cpp ${_dir}/region.cpp)
set(NPU_SANITIZER_SOURCES
  ${NPU_SANITIZER_CORE_SOURCES}
  ${_dir}/launches.cpp
  ${_dir}/sanitizer.cpp)

if(NPU_BUILD_TESTS AND NOT TARGET npu_sanitizer_test)
  find_package(GTest REQUIRED)
  add_executable(npu_sanitizer_test ${NPU_SANITIZER_CORE_SOURCES} ${_dir}/race_table_test.cpp)
  target_include_directories(npu_sanitizer_test
    PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(npu_sanitizer_test PRIVATE GTest::gtest_main)
  npu_test_options(npu_sanitizer_test)
  add_test(NAME npu_sanitizer_test COMMAND npu_sanitizer_test)
endif()

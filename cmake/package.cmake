# SPDX-License-Identifier: Apache-2.0
# What a wheel holds: drivers; for vendors headers, the CMake package, the null
# driver's sources and documents. The kit: tests/conformance/CMakeLists.txt.
set(NPU_PACKAGE_DIR torch_npu)

# ---- drivers that ship -------------------------------------------------------
install(TARGETS ${NPU_DRIVER_TARGETS}
  LIBRARY DESTINATION ${NPU_PACKAGE_DIR}/drivers)

# ---- for vendors: find_package(opennpu), opennpu::contract, npu_add_driver ------
include(CMakePackageConfigHelpers)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/npu
  DESTINATION ${NPU_PACKAGE_DIR}/include FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${NPU_GENERATED_DIR}/include/npu
  DESTINATION ${NPU_PACKAGE_DIR}/include FILES_MATCHING PATTERN "*.h")
write_basic_package_version_file(
  ${CMAKE_BINARY_DIR}/opennpuConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMajorVersion ARCH_INDEPENDENT)
install(FILES
  ${CMAKE_SOURCE_DIR}/cmake/opennpuConfig.cmake
  ${CMAKE_SOURCE_DIR}/cmake/driver.cmake
  ${CMAKE_SOURCE_DIR}/cmake/driver_exports.map
  ${CMAKE_SOURCE_DIR}/cmake/pack.cmake
  ${CMAKE_BINARY_DIR}/opennpuConfigVersion.cmake
  DESTINATION ${NPU_PACKAGE_DIR}/share/cmake/opennpu)

# What `opennpu driver new` copies, and what a driver's author reads.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/drivers/null
  DESTINATION ${NPU_PACKAGE_DIR}/share/opennpu/drivers
  FILES_MATCHING PATTERN "*.cpp" PATTERN "*.h")
install(FILES
  ${CMAKE_SOURCE_DIR}/docs/driver-guide.md
  ${CMAKE_SOURCE_DIR}/docs/random-numbers.md
  ${NPU_GENERATED_DIR}/docs/kinds.md
  DESTINATION ${NPU_PACKAGE_DIR}/docs)
install(FILES ${CMAKE_SOURCE_DIR}/python/opennpu/skeleton/op.cpp
  DESTINATION opennpu/skeleton)

# ---- for operator packs: headers, generator, `opennpu pack` ---------------------
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/torch_npu ${CMAKE_SOURCE_DIR}/include/op_plugin
                  ${CMAKE_SOURCE_DIR}/include/third_party
  DESTINATION ${NPU_PACKAGE_DIR}/include FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${CMAKE_SOURCE_DIR}/codegen
  DESTINATION ${NPU_PACKAGE_DIR}/share/opennpu FILES_MATCHING PATTERN "*.py"
  PATTERN "__pycache__" EXCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/ops/kinds.yaml DESTINATION ${NPU_PACKAGE_DIR}/share/opennpu/ops)

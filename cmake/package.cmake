# SPDX-License-Identifier: Apache-2.0
# What a wheel holds: drivers, headers and the CMake package for vendors.
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
  ${CMAKE_BINARY_DIR}/opennpuConfigVersion.cmake
  DESTINATION ${NPU_PACKAGE_DIR}/share/cmake/opennpu)

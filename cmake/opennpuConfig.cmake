# SPDX-License-Identifier: Apache-2.0
# find_package(opennpu): the contract's headers and npu_add_driver, as installed
# in <site-packages>/torch_npu. Needs no PyTorch.
get_filename_component(_opennpu_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET opennpu::contract)
  add_library(opennpu::contract INTERFACE IMPORTED)
  target_include_directories(opennpu::contract INTERFACE "${_opennpu_root}/include")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/driver.cmake")
# COMPONENTS pack: npu_add_pack, which needs PyTorch.
if("pack" IN_LIST opennpu_FIND_COMPONENTS)
  include("${CMAKE_CURRENT_LIST_DIR}/pack.cmake")
endif()

# SPDX-License-Identifier: Apache-2.0
# npu_unity(target): each source folder of the target becomes one translation unit,
# since PyTorch's headers cost more to read than our files to compile. File-local names are therefore
# unique within a folder; scripts/check_unity.py says where they are not.
option(NPU_UNITY "One translation unit per folder: faster from scratch, slower after an edit" OFF)

function(npu_unity target)
  if(NOT NPU_UNITY)
    return()
  endif()
  get_target_property(_sources ${target} SOURCES)
  foreach(_source IN LISTS _sources)
    if(NOT _source MATCHES "\\.cpp$" OR _source MATCHES "^${CMAKE_BINARY_DIR}")
      continue()
    endif()
    get_filename_component(_path ${_source} ABSOLUTE)
    file(RELATIVE_PATH _path ${CMAKE_SOURCE_DIR} ${_path})
    get_filename_component(_folder ${_path} DIRECTORY)
    string(MAKE_C_IDENTIFIER ${_folder} _group)
    set_source_files_properties(${_source} PROPERTIES UNITY_GROUP ${_group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

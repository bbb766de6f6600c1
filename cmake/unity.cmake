# SPDX-License-Identifier: Apache-2.0
# npu_unity(target): each source folder of the target becomes one translation unit,
# since PyTorch's headers cost more to read than our files to compile. File-local names are therefore
# unique within a folder; scripts/check_unity.py says where they are not.
# CMake's own unity builds name files by absolute paths, so the compiler cache of one clone would
# not serve another; these name them from the top of the tree.
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
    string(APPEND _text_${_group} "#include \"${_path}\"\n")
    list(APPEND _groups ${_group})
    set_source_files_properties(${_source} PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
  list(REMOVE_DUPLICATES _groups)
  foreach(_group IN LISTS _groups)
    set(_unit ${CMAKE_CURRENT_BINARY_DIR}/unity/${_group}.cpp)
    file(GENERATE OUTPUT ${_unit} CONTENT "${_text_${_group}}")
    target_sources(${target} PRIVATE ${_unit})
  endforeach()
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
endfunction()

# SPDX-License-Identifier: Apache-2.0
# Finds nvcc, and the headers and the static runtime beside it: CUDACXX, PATH, /usr/local/cuda, or the nvidia packages
# of the Python that builds.
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('purelib') + '/nvidia')"
  OUTPUT_VARIABLE _packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(GLOB _package_bins ${_packages}/cu1*/bin ${_packages}/cuda_nvcc/bin)
if(DEFINED ENV{CUDACXX} AND NOT NPU_NVCC)
  set(NPU_NVCC $ENV{CUDACXX} CACHE FILEPATH "nvcc")
endif()
find_program(NPU_NVCC nvcc HINTS ${_package_bins} /usr/local/cuda/bin DOC "nvcc")
if(NOT NPU_NVCC)
  return()
endif()
# nvcc itself says where its toolkit is: what is on PATH may be a script.
if(NOT NPU_CUDA_ROOT)
  execute_process(COMMAND ${NPU_NVCC} --dryrun -x cu /dev/null -c ERROR_VARIABLE _said OUTPUT_QUIET)
  if(_said MATCHES "#\\$ TOP=([^\n]+)")
    file(REAL_PATH ${CMAKE_MATCH_1} _root)
    set(NPU_CUDA_ROOT ${_root} CACHE PATH "The CUDA toolkit")
  endif()
endif()
file(GLOB _roots ${NPU_CUDA_ROOT} ${_packages}/cu1* ${_packages}/cuda_runtime)
find_path(NPU_CUDA_INCLUDE cuda_runtime_api.h HINTS ${_roots} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(NPU_CUDART cudart_static HINTS ${_roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
if(NOT NPU_CUDA_INCLUDE OR NOT NPU_CUDART)
  message(STATUS "nvcc is at ${NPU_NVCC}, but the CUDA runtime (headers, libcudart_static.a) is not beside it")
  set(NPU_NVCC NPU_NVCC-NOTFOUND)
  return()
endif()

# npu_cuda_objects(out SOURCES a.cu ... OPTIONS ...): objects of the calling folder's CUDA files.
function(npu_cuda_objects out)
  cmake_parse_arguments(arg "" "" "SOURCES;OPTIONS" ${ARGN})
  set(_targets)
  foreach(_arch IN LISTS NPU_CUDA_ARCHITECTURES)
    list(APPEND _targets -gencode arch=compute_${_arch},code=sm_${_arch})
  endforeach()
  if(NPU_CUDA_PTX)
    list(APPEND _targets -gencode arch=compute_${NPU_CUDA_PTX},code=compute_${NPU_CUDA_PTX})
  endif()
  set(_objects)
  foreach(_source IN LISTS arg_SOURCES)
    get_filename_component(_name ${_source} NAME_WE)
    set(_object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${_name}.o)
    add_custom_command(
      OUTPUT ${_object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${NPU_NVCC} -std=c++20 -O2 -ccbin ${CMAKE_CXX_COMPILER} ${_targets}
              --expt-relaxed-constexpr -diag-suppress=20012,20013,20015 ${arg_OPTIONS}
              -Xcompiler=-fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden
              -I${CMAKE_SOURCE_DIR}/include -I${NPU_GENERATED_DIR}/include
              -I${CMAKE_CURRENT_SOURCE_DIR} -I${CMAKE_CURRENT_SOURCE_DIR}/..
              -MD -MF ${_object}.d -c ${_source} -o ${_object}
      DEPENDS ${_source} npu_kinds
      DEPFILE ${_object}.d
      COMMENT "nvcc ${_name}.cu" VERBATIM)
    list(APPEND _objects ${_object})
  endforeach()
  set_source_files_properties(${_objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${out} ${_objects} PARENT_SCOPE)
endfunction()

# SPDX-License-Identifier: Apache-2.0
# The ladder's sources, for src/aten/CMakeLists.txt.
set(NPU_LADDER_SOURCES
  adopt.cpp
  call.cpp
  components.cpp
  copies.cpp
  entry.cpp
  policy.cpp
  profile.cpp
  report.cpp
  run.cpp
  shim.cpp
  sweep.cpp
  ticks.cpp
  unboxed.cpp
  wrapper_pool.cpp)

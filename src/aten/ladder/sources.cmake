# SPDX-License-Identifier: Apache-2.0
# The ladder's sources, for src/aten/CMakeLists.txt.
set(NPU_LADDER_SOURCES
  ladder/adopt.cpp
  ladder/call.cpp
  ladder/components.cpp
  ladder/copies.cpp
  ladder/entry.cpp
  ladder/policy.cpp
  ladder/profile.cpp
  ladder/report.cpp
  ladder/run.cpp
  ladder/shim.cpp
  ladder/sweep.cpp
  ladder/ticks.cpp
  ladder/wrapper_pool.cpp)

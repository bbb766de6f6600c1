# SPDX-License-Identifier: Apache-2.0
# The adapters' sources, for src/aten/CMakeLists.txt: one file a line, in order of names.
set(NPU_ADAPTER_SOURCES
  flip.cpp
  foreach.cpp
  foreach_binary.cpp
  foreach_reduce.cpp
  foreach_unary.cpp
  fused_optim.cpp
  list_frame.cpp
  map.cpp
  mend.cpp
  native.cpp
  structured.cpp)

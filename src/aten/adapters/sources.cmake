# SPDX-License-Identifier: Apache-2.0
# The adapters' sources, for src/aten/CMakeLists.txt: one file a line, in order of names.
set(NPU_ADAPTER_SOURCES
  arrange.cpp
  embed.cpp
  flip.cpp
  foreach.cpp
  foreach_binary.cpp
  foreach_reduce.cpp
  foreach_unary.cpp
  fused_optim.cpp
  gemm.cpp
  index.cpp
  list_frame.cpp
  make.cpp
  map.cpp
  masked_fill.cpp
  mend.cpp
  native.cpp
  op.cpp
  pad.cpp
  pool.cpp
  resample.cpp
  scatter.cpp
  select.cpp
  structured.cpp
  upsample.cpp)

// SPDX-License-Identifier: Apache-2.0
// A counter of an allocator, ours or PyTorch's for pinned memory, as a dict.
#pragma once

#include <pybind11/pybind11.h>

namespace npu {

template <class Stat>
pybind11::dict stat_dict(const Stat& stat) {
  pybind11::dict out;
  out["current"] = stat.current;
  out["peak"] = stat.peak;
  out["allocated"] = stat.allocated;
  out["freed"] = stat.freed;
  return out;
}

}  // namespace npu

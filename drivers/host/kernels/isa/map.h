// SPDX-License-Identifier: Apache-2.0
// Elementwise loops that gain from wider vectors: one table per instruction
// set. The others are compiled once (kernels/map.h).
#pragma once

#include "kernels/formulas.h"

namespace npu::host {

// One loop for float and one for double.
struct MapLoop {
  std::uint32_t slot;
  std::uint32_t code;
  MapLineFn line[2];
};

struct MapLoops {
  const MapLoop* rows;
  int count;
};

// Built by kernels/isa/map_<isa>.cpp, each with its own compiler flags.
namespace isa_baseline {
extern const MapLoops kMapLoops;
}
namespace isa_avx2 {
extern const MapLoops kMapLoops;
}
namespace isa_avx512 {
extern const MapLoops kMapLoops;
}

}  // namespace npu::host

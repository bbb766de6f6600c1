// SPDX-License-Identifier: Apache-2.0
// Runs of list frames, computed a few entries at a time.
//
// A traced optimizer is a dozen frames over the lists of all parameters, and
// each reads and writes all of them. Entries do not depend on each other, so
// the frames of a run are split: all of them for some entries, then for the
// next. Their operands stay in the cache, and what is only used in between
// takes the memory of some entries instead of all.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace npu::graph {

struct Tiling {
  // Where the node at each old place begins now; one more for the end. The
  // first node of a run is where all of it is, the others are empty.
  std::vector<std::uint32_t> place;
  std::uint32_t runs = 0;  // that were split
};

// `bytes`: how much of one list a tile has, by whole entries; less where lists
// are short. After the passes that look at whole lists, before plan_memory.
Tiling tile_lists(Graph& graph, std::uint64_t bytes);

}  // namespace npu::graph

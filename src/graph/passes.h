// SPDX-License-Identifier: Apache-2.0
// Passes over a recording's nodes, between recording and memory plan.
//
// A node that a pass takes out becomes Nothing, so that the others keep their
// numbers. `movable` says of each buffer whether only frames use it: its memory
// may be elsewhere, and nobody misses what is in it after its last reader.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace npu::graph {

// Frames whose results nobody reads. Returns how many went.
std::uint32_t remove_dead(Graph& graph, const std::vector<bool>& movable);

// A buffer that now lives in another one.
struct Moved {
  BufferId from;
  BufferId to;
};

// A value that is computed into a buffer and then copied as a whole over
// another one is computed there. `aligned` says of each buffer whether it
// begins where the allocator's do; `lists_alias`, whether the driver's list
// kinds may write what they read. Returns the buffers that went; there is one
// copy less for each.
std::vector<Moved> remove_copies(
    Graph& graph,
    const std::vector<bool>& movable,
    const std::vector<bool>& aligned,
    bool lists_alias);

// A list that is read for the last time by the frame that fills another one,
// entry by entry, is computed in that one's memory from the start: chains of
// list frames work in place, as the program did before it was traced. Returns
// the buffers that went. After remove_copies, so that results are where they
// end up.
std::vector<Moved> reuse_lists(
    Graph& graph,
    const std::vector<bool>& movable,
    const std::vector<bool>& aligned,
    bool lists_alias);

}  // namespace npu::graph

// SPDX-License-Identifier: Apache-2.0
// What passes that compute a value in other memory have in common.
#pragma once

#include <span>

#include "graph/pass.h"
#include "graph/uses.h"

namespace npu::graph {

// Whether the frame at `node` computes all of `move.from` and may write it to
// `move.to`. It may read `move.to` too where the driver's list kind can write
// over that list: a list kind reads entry i before it writes entry i.
bool may_write_there(
    const Graph& graph,
    const PassContext& context,
    std::size_t node,
    std::span<const Use> uses,
    Moved move);

}  // namespace npu::graph

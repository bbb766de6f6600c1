// SPDX-License-Identifier: Apache-2.0
// What passes that make programs of neighbouring frames have in common.
#pragma once

#include "graph/pass.h"

namespace npu::graph {

// kMaps: elementwise frames. kRows: those with reductions among them, up to the
// last one.
enum class Join { kMaps, kRows };

// Frames that go together become one frame of kind program or multi_program, at
// the place of the last of them. Fills of memory that only they read become
// numbers of the program. Counts frames and programs.
PassStats fuse(Graph& graph, const PassContext& context, Join what);

}  // namespace npu::graph

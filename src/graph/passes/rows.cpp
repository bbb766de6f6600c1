// SPDX-License-Identifier: Apache-2.0
// Pass rows: elementwise frames and the reductions over the last dimensions
// that read what they make become one frame of kind program, code rows.
#include "graph/passes/fuse.h"

namespace npu::graph::passes::rows {

PassStats run(Graph& graph, const PassContext& context) {
  return fuse(graph, context, Join::kRows);
}

}  // namespace npu::graph::passes::rows

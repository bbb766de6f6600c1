// SPDX-License-Identifier: Apache-2.0
// Pass chains: elementwise frames that follow each other with nothing in
// between become one frame of kind program or multi_program.
#include "graph/passes/fuse.h"

namespace npu::graph::passes::chains {

PassStats run(Graph& graph, const PassContext& context) {
  return fuse(graph, context, Join::kMaps);
}

}  // namespace npu::graph::passes::chains

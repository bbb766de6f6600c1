// SPDX-License-Identifier: Apache-2.0
// Pass dead: removes frames whose results are never read.
#include <algorithm>

#include "graph/pass.h"
#include "graph/uses.h"

namespace npu::graph::passes::dead {

PassStats run(Graph& graph, const PassContext& context) {
  std::vector<bool> read(graph.buffers.size(), false);
  PassStats made;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const std::vector<Use> uses = uses_of(*node);
    const bool needed =
        is_island(*node) || std::ranges::any_of(uses, [&](const Use& use) {
          return use.writes &&
                 (!context.movable[use.ref.buffer] || read[use.ref.buffer]);
        });
    if (needed) {
      for (const Use& use : uses) {
        read[use.ref.buffer] = read[use.ref.buffer] || use.reads;
      }
    } else if (!std::holds_alternative<Nothing>(*node)) {
      *node = Nothing{};
      ++made.counts[0];
    }
  }
  return made;
}

}  // namespace npu::graph::passes::dead

// SPDX-License-Identifier: Apache-2.0
// How the nodes of a recording use its buffers.
#include "graph/uses.h"

#include <algorithm>
#include <optional>

namespace npu::graph {

std::vector<Use> uses_of(const Node& node) {
  if (const auto* const frame = std::get_if<FrameCopy>(&node)) {
    return frame->uses();
  }
  std::vector<Use> found;
  if (const auto* const bytes = std::get_if<BytesNode>(&node)) {
    Use to{.ref = bytes->to};
    to.bytes = to.covered = bytes->bytes;
    to.writes = true;
    found.push_back(to);
    if (!bytes->set) {
      Use from{.ref = bytes->from};
      from.bytes = bytes->bytes;
      from.reads = true;
      found.push_back(from);
    }
  } else if (const auto* const island = std::get_if<IslandNode>(&node)) {
    for (const BufferId id : island->buffers) {
      Use use{.ref = {id, 0}};
      use.reads = use.writes = true;
      found.push_back(use);
    }
  }
  return found;
}

AllUses::AllUses(const Graph& graph) : graph_(graph) {
  for (const Node& node : graph.nodes) {
    uses_.push_back(uses_of(node));
  }
}

bool AllUses::touches(std::size_t node, BufferId id) const {
  return std::ranges::any_of(
      uses_[node], [&](const Use& use) { return use.ref.buffer == id; });
}

bool AllUses::writes(std::size_t node, BufferId id) const {
  return std::ranges::any_of(uses_[node], [&](const Use& use) {
    return use.ref.buffer == id && use.writes;
  });
}

void redirect(Graph& graph, AllUses& uses, BufferId from, BufferId to) {
  const auto there = [&](const Ref& ref) {
    return ref.buffer == from ? Ref{to, ref.offset} : ref;
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!uses.touches(n, from)) {
      continue;
    }
    if (auto* const frame = std::get_if<FrameCopy>(&graph.nodes[n])) {
      frame->remap(
          [&](const Ref& ref) -> std::optional<Ref> { return there(ref); });
    } else if (auto* const bytes = std::get_if<BytesNode>(&graph.nodes[n])) {
      bytes->to = there(bytes->to);
      bytes->from = there(bytes->from);
    }
    uses.update(n);
  }
}

}  // namespace npu::graph

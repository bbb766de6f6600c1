// SPDX-License-Identifier: Apache-2.0
// How the nodes of a recording use its buffers.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.h"

namespace npu::graph {

// What a node does to each place. An island may do anything to its buffers.
std::vector<Use> uses_of(const Node& node);

inline bool is_island(const Node& node) {
  return std::holds_alternative<IslandNode>(node);
}

// The uses of every node, kept while a pass changes nodes.
class AllUses {
 public:
  explicit AllUses(const Graph& graph);
  const std::vector<Use>& of(std::size_t node) const {
    return uses_[node];
  }
  // The node changed.
  void update(std::size_t node) {
    uses_[node] = uses_of(graph_.nodes[node]);
  }
  bool touches(std::size_t node, BufferId id) const;
  bool writes(std::size_t node, BufferId id) const;

 private:
  const Graph& graph_;
  std::vector<std::vector<Use>> uses_;
};

// Every use of `from` becomes one of `to`, at the same offset.
void redirect(Graph& graph, AllUses& uses, BufferId from, BufferId to);

}  // namespace npu::graph

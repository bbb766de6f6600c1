// SPDX-License-Identifier: Apache-2.0
// Pass copies: a value that is computed and then copied as a whole over another
// buffer is computed there.
#include <optional>

#include "graph/passes/in_place.h"

namespace npu::graph::passes::copies {
namespace {

// A copy of all of one buffer to the beginning of another.
std::optional<Moved> whole_copy(const Graph& graph, const Node& node) {
  const auto* const bytes = std::get_if<BytesNode>(&node);
  if (bytes == nullptr || bytes->set || bytes->to.offset != 0 ||
      bytes->from.offset != 0 || bytes->to.buffer == bytes->from.buffer ||
      bytes->bytes != graph.buffers[bytes->from.buffer].bytes) {
    return std::nullopt;
  }
  return Moved{bytes->from.buffer, bytes->to.buffer};
}

// Where the value is made, when nothing stands against making it in place.
bool can_move(
    const Graph& graph,
    const PassContext& context,
    const AllUses& uses,
    std::size_t copy,
    Moved move) {
  std::size_t first = 0;
  while (!uses.touches(first, move.from)) {
    ++first;
  }
  if (first >= copy ||
      !may_write_there(graph, context, first, uses.of(first), move)) {
    return false;
  }
  std::size_t last = copy;
  for (std::size_t n = first + 1; n < graph.nodes.size(); ++n) {
    if (!uses.touches(n, move.from)) {
      continue;
    }
    if (is_island(graph.nodes[n]) || (n != copy && uses.writes(n, move.from))) {
      return false;
    }
    last = n;
  }
  for (std::size_t n = first + 1; n <= last; ++n) {
    if (n != copy &&
        (n < copy ? uses.touches(n, move.to) : uses.writes(n, move.to))) {
      return false;
    }
  }
  return true;
}

}  // namespace

PassStats run(Graph& graph, const PassContext& context) {
  AllUses uses(graph);
  PassStats made;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::optional<Moved> move = whole_copy(graph, graph.nodes[n]);
    if (!move || !context.movable[move->from] || !context.aligned[move->to] ||
        !can_move(graph, context, uses, n, *move)) {
      continue;
    }
    graph.nodes[n] = Nothing{};
    uses.update(n);
    redirect(graph, uses, move->from, move->to);
    made.moved.push_back(*move);
    ++made.counts[0];
  }
  return made;
}

}  // namespace npu::graph::passes::copies

// SPDX-License-Identifier: Apache-2.0
// Pass reuse: a list whose last reader fills another list, entry by entry, is
// computed in that list's memory from the start. Chains of list frames work in
// place, as the program did before it was traced. Runs after copies, so that
// results are where they end up.
#include <algorithm>
#include <map>
#include <optional>

#include "graph/passes/in_place.h"
#include "npu/kinds.h"

namespace npu::graph::passes::reuse {
namespace {

// Whether `node` reads all of `move.from` where it fills `move.to`, entry by
// entry, and neither of them elsewhere.
bool fills_from(const Graph& graph, std::span<const Use> uses, Moved move) {
  const std::uint64_t bytes = graph.buffers[move.from].bytes;
  std::optional<std::int32_t> entry;
  bool reads = false;
  for (const Use& use : uses) {
    if (use.ref.buffer == move.to) {
      if (use.reads || entry || use.ref.offset != 0 || use.covered != bytes) {
        return false;
      }
      entry = use.entry;
    }
  }
  for (const Use& use : uses) {
    if (use.ref.buffer == move.from) {
      if (use.writes || !entry || use.entry != *entry || use.ref.offset != 0 ||
          use.bytes != bytes) {
        return false;
      }
      reads = true;
    }
  }
  return reads;
}

// Whether `move.from` is of use only from the frame that makes it to `last`,
// and `move.to` is not touched in between.
bool can_reuse(
    const Graph& graph,
    const PassContext& context,
    const AllUses& uses,
    std::size_t last,
    Moved move) {
  std::size_t first = 0;
  while (!uses.touches(first, move.from)) {
    ++first;
  }
  if (first >= last ||
      !may_write_there(graph, context, first, uses.of(first), move)) {
    return false;
  }
  for (std::size_t n = first + 1; n < graph.nodes.size(); ++n) {
    const bool touches = uses.touches(n, move.from);
    const bool is_between = n < last;
    if ((touches && (n > last || is_island(graph.nodes[n]) ||
                     uses.writes(n, move.from))) ||
        (is_between && uses.touches(n, move.to))) {
      return false;
    }
  }
  return true;
}

}  // namespace

// From the end, so that a chain collapses into its last buffer.
PassStats run(Graph& graph, const PassContext& context) {
  PassStats made;
  AllUses uses(graph);
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const auto* const frame = std::get_if<FrameCopy>(&graph.nodes[n]);
    if (frame == nullptr || frame->frame().slot != NPU_KIND_MULTI_MAP) {
      continue;
    }
    std::map<std::int32_t, std::vector<BufferId>> read;  // by entry
    const std::vector<Use> before = uses.of(n);
    for (const Use& use : before) {
      if (use.reads && !use.writes && use.entry >= 0 &&
          context.may_write_over(
              frame->frame(), static_cast<std::uint32_t>(use.list))) {
        read[use.entry].push_back(use.ref.buffer);
      }
    }
    for (const Use& to : before) {
      if (!to.writes || !context.aligned[to.ref.buffer]) {
        continue;
      }
      for (const BufferId from : read[to.entry]) {
        const Moved move{from, to.ref.buffer};
        if (from != move.to && context.movable[from] &&
            fills_from(graph, uses.of(n), move) &&
            can_reuse(graph, context, uses, n, move)) {
          redirect(graph, uses, move.from, move.to);
          made.moved.push_back(move);
          ++made.counts[0];
          break;
        }
      }
    }
  }
  return made;
}

}  // namespace npu::graph::passes::reuse

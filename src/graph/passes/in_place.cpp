// SPDX-License-Identifier: Apache-2.0
// Whether a frame may compute its result in other memory.
#include "graph/passes/in_place.h"

#include <algorithm>
#include <optional>

#include "npu/kinds.h"

namespace npu::graph {

bool may_write_there(
    const Graph& graph,
    const PassContext& context,
    std::size_t node,
    std::span<const Use> uses,
    Moved move) {
  const auto* const frame = std::get_if<FrameCopy>(&graph.nodes[node]);
  if (frame == nullptr) {
    return false;
  }
  const bool entries = frame->frame().slot == NPU_KIND_MULTI_MAP;
  std::optional<std::int32_t> entry;
  for (const Use& use : uses) {
    if (use.ref.buffer == move.from) {
      if (use.reads || use.ref.offset != 0 ||
          use.covered != graph.buffers[move.from].bytes ||
          (entry && *entry != use.entry)) {
        return false;
      }
      entry = use.entry;
    }
  }
  return entry.has_value() && std::ranges::all_of(uses, [&](const Use& use) {
           return use.ref.buffer != move.to ||
                  (entries && use.reads && !use.writes && use.entry == *entry &&
                   use.list >= 0 &&
                   context.may_write_over(
                       frame->frame(), static_cast<std::uint32_t>(use.list)) &&
                   use.ref.offset == 0 &&
                   use.bytes == graph.buffers[move.from].bytes);
         });
}

}  // namespace npu::graph

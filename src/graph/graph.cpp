// SPDX-License-Identifier: Apache-2.0
// Recordings: lives of buffers, their places, and running frames.
#include "graph/graph.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "graph/uses.h"

namespace npu::graph {
namespace {

// As the caching allocator aligns, so that plans made for a class of
// alignments hold.
constexpr std::uint64_t kArenaAlign = 512;

bool alive_together(const Buffer& a, const Buffer& b) {
  return a.first <= b.last && b.first <= a.last;
}

bool overlap(const Buffer& a, const Buffer& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// The lowest place that is free while `buffer` is in use.
std::uint64_t find_place(
    const Buffer& buffer, const std::vector<const Buffer*>& placed) {
  std::vector<const Buffer*> rivals;
  std::ranges::copy_if(placed, std::back_inserter(rivals), [&](auto* other) {
    return alive_together(buffer, *other);
  });
  std::ranges::sort(rivals, {}, [](auto* other) { return other->offset; });
  std::uint64_t at = 0;
  for (const Buffer* const other : rivals) {
    if (at + buffer.bytes <= other->offset) {
      break;
    }
    at = std::max(at, other->offset + allocated_bytes(other->bytes));
  }
  return at;
}

// Large ones first: what is left between them is for the small ones.
void place(Graph& graph, std::span<const BufferId> locals) {
  std::vector<const Buffer*> placed;
  graph.arena_bytes = 0;
  graph.arena_last = 0;
  for (const BufferId id : locals) {
    Buffer& buffer = graph.buffers[id];
    buffer.offset = find_place(buffer, placed);
    placed.push_back(&buffer);
    graph.arena_bytes = std::max(
        graph.arena_bytes, buffer.offset + allocated_bytes(buffer.bytes));
    graph.arena_last = std::max(graph.arena_last, buffer.last);
  }
}

// What is held at each node, these buffers included.
std::vector<std::uint64_t> with(
    const Graph& graph,
    std::span<const BufferId> buffers,
    std::vector<std::uint64_t> held) {
  for (const BufferId id : buffers) {
    const Buffer& buffer = graph.buffers[id];
    for (std::uint32_t n = buffer.first; n <= buffer.last; ++n) {
      held[n] += allocated_bytes(buffer.bytes);
    }
  }
  return held;
}

// Whether an arena for these buffers takes no more, at the worst moment, than
// they would alone. Places them.
bool fits(
    Graph& graph,
    std::span<const BufferId> locals,
    const std::vector<std::uint64_t>& held) {
  place(graph, locals);
  const std::uint64_t alone = std::ranges::max(with(graph, locals, held));
  const auto until =
      std::min<std::size_t>(graph.arena_last + std::size_t{1}, held.size());
  const std::uint64_t beside = std::ranges::max(std::span(held).first(until));
  return locals.empty() || beside + graph.arena_bytes <= alone;
}

}  // namespace

std::uint64_t allocated_bytes(std::uint64_t bytes) {
  return (bytes + kArenaAlign - 1) / kArenaAlign * kArenaAlign;
}

std::vector<BufferId> buffers_of(const Node& node) {
  if (const auto* const frame = std::get_if<FrameCopy>(&node)) {
    return frame->buffers();
  }
  if (const auto* const bytes = std::get_if<BytesNode>(&node)) {
    if (bytes->set) {
      return {bytes->to.buffer};
    }
    return {bytes->to.buffer, bytes->from.buffer};
  }
  const auto* const island = std::get_if<IslandNode>(&node);
  return island == nullptr ? std::vector<BufferId>{} : island->buffers;
}

void find_lives(Graph& graph) {
  for (Buffer& buffer : graph.buffers) {
    buffer.used = false;
  }
  for (std::uint32_t n = 0; n < graph.nodes.size(); ++n) {
    for (const BufferId id : buffers_of(graph.nodes[n])) {
      Buffer& buffer = graph.buffers.at(id);
      buffer.first = buffer.used ? buffer.first : n;
      buffer.last = n;
      buffer.used = true;
    }
  }
}

std::uint64_t plan_memory(
    Graph& graph, const std::vector<std::uint64_t>& held) {
  find_lives(graph);
  std::vector<BufferId> locals;
  std::uint64_t sum = 0;
  for (BufferId id = 0; id < graph.buffers.size(); ++id) {
    const Buffer& buffer = graph.buffers[id];
    if (buffer.kind == Buffer::kLocal && buffer.used) {
      locals.push_back(id);
      sum += allocated_bytes(buffer.bytes);
    }
  }
  std::ranges::stable_sort(locals, std::greater<>(), [&](BufferId id) {
    return graph.buffers[id].bytes;
  });
  // The larger ones, as many as it takes.
  std::size_t none = 0;
  std::size_t alone = 0;
  if (!held.empty() && !fits(graph, locals, held)) {
    for (alone = locals.size(); alone - none > 1;) {
      const std::size_t middle = (none + alone) / 2;
      (fits(
           graph,
           std::span(locals).subspan(middle),
           with(graph, std::span(locals).first(middle), held))
           ? alone
           : none) = middle;
    }
  }
  for (const BufferId id : std::span(locals).first(alone)) {
    graph.buffers[id].kind = Buffer::kBound;
  }
  place(graph, std::span(locals).subspan(alone));
  return sum;
}

std::string check_places(const Graph& graph) {
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const Use& use : uses_of(graph.nodes[n])) {
      const BufferId id = use.ref.buffer;
      const std::string where =
          "node " + std::to_string(n) + ": buffer " + std::to_string(id);
      if (id >= graph.buffers.size()) {
        return where + " does not exist";
      }
      if (use.ref.offset + use.covered > graph.buffers[id].bytes) {
        return where + " is used outside of its bytes";
      }
    }
  }
  return "";
}

std::string verify(const Graph& graph) {
  for (std::uint32_t n = 0; n < graph.nodes.size(); ++n) {
    for (const BufferId id : buffers_of(graph.nodes[n])) {
      const std::string where =
          "node " + std::to_string(n) + ": buffer " + std::to_string(id);
      if (id >= graph.buffers.size()) {
        return where + " does not exist";
      }
      const Buffer& buffer = graph.buffers[id];
      if (!buffer.used || n < buffer.first || n > buffer.last) {
        return where + " is used outside of its life";
      }
      if (buffer.kind == Buffer::kLocal &&
          buffer.offset + buffer.bytes > graph.arena_bytes) {
        return where + " ends behind the arena";
      }
    }
    if (const auto* const bytes = std::get_if<BytesNode>(&graph.nodes[n])) {
      for (const Ref ref : {bytes->to, bytes->set ? bytes->to : bytes->from}) {
        if (ref.offset + bytes->bytes > graph.buffers[ref.buffer].bytes) {
          return "node " + std::to_string(n) + ": bytes outside of buffer " +
                 std::to_string(ref.buffer);
        }
      }
    }
  }
  std::vector<BufferId> locals;
  for (BufferId id = 0; id < graph.buffers.size(); ++id) {
    if (graph.buffers[id].kind == Buffer::kLocal && graph.buffers[id].used) {
      locals.push_back(id);
    }
  }
  for (std::size_t i = 0; i < locals.size(); ++i) {
    for (std::size_t j = i + 1; j < locals.size(); ++j) {
      const Buffer& a = graph.buffers[locals[i]];
      const Buffer& b = graph.buffers[locals[j]];
      if (alive_together(a, b) && overlap(a, b)) {
        return "buffers " + std::to_string(locals[i]) + " and " +
               std::to_string(locals[j]) + " overlap while both are in use";
      }
    }
  }
  return "";
}

void run_nodes(
    Graph& graph,
    std::size_t first,
    std::size_t last,
    std::span<void* const> bases,
    Launcher& launcher) {
  const auto at = [&](const Ref& ref) {
    return static_cast<std::byte*>(bases[ref.buffer]) + ref.offset;
  };
  for (std::size_t n = first; n < last; ++n) {
    if (auto* const frame = std::get_if<FrameCopy>(&graph.nodes[n])) {
      launcher.frame(frame->bind(bases));
    } else if (
        const auto* const node = std::get_if<BytesNode>(&graph.nodes[n])) {
      launcher.bytes(*node, at(node->to), node->set ? nullptr : at(node->from));
    }
  }
}

}  // namespace npu::graph

// SPDX-License-Identifier: Apache-2.0
// Passes over a recording's nodes.
#include "graph/passes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "npu/kinds.h"

namespace npu::graph {
namespace {

// What a node does to each place. An island may do anything to its buffers.
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

bool is_island(const Node& node) {
  return std::holds_alternative<IslandNode>(node);
}

// The uses of every node, kept while nodes change.
class AllUses {
 public:
  explicit AllUses(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) {
      uses_.push_back(uses_of(node));
    }
  }
  const std::vector<Use>& of(std::size_t node) const {
    return uses_[node];
  }
  void update(std::size_t node) {
    uses_[node] = uses_of(graph_.nodes[node]);
  }
  bool touches(std::size_t node, BufferId id) const {
    return std::ranges::any_of(
        uses_[node], [&](const Use& use) { return use.ref.buffer == id; });
  }
  bool writes(std::size_t node, BufferId id) const {
    return std::ranges::any_of(uses_[node], [&](const Use& use) {
      return use.ref.buffer == id && use.writes;
    });
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<Use>> uses_;
};

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

// Whether the frame computes all of `move.from` and may write it to `move.to`:
// a list kind reads entry i before it writes entry i.
bool may_write_there(
    const Graph& graph,
    std::size_t node,
    std::span<const Use> uses,
    Moved move,
    bool lists_alias) {
  const auto* const frame = std::get_if<FrameCopy>(&graph.nodes[node]);
  if (frame == nullptr) {
    return false;
  }
  const bool entries = lists_alias && frame->frame().slot == NPU_KIND_MULTI_MAP;
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
                   use.ref.offset == 0 &&
                   use.bytes == graph.buffers[move.from].bytes);
         });
}

// Where the value is made, when nothing stands against making it in place.
bool can_move(
    const Graph& graph,
    const AllUses& uses,
    std::size_t copy,
    Moved move,
    bool lists_alias) {
  std::size_t first = 0;
  while (!uses.touches(first, move.from)) {
    ++first;
  }
  if (first >= copy ||
      !may_write_there(graph, first, uses.of(first), move, lists_alias)) {
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
    const Graph& graph, const AllUses& uses, std::size_t last, Moved move) {
  std::size_t first = 0;
  while (!uses.touches(first, move.from)) {
    ++first;
  }
  if (first >= last ||
      !may_write_there(graph, first, uses.of(first), move, true)) {
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

void redirect(Graph& graph, AllUses& uses, Moved move) {
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!uses.touches(n, move.from)) {
      continue;
    }
    const auto there = [&](const Ref& ref) -> std::optional<Ref> {
      return ref.buffer == move.from ? Ref{move.to, ref.offset} : ref;
    };
    if (auto* const frame = std::get_if<FrameCopy>(&graph.nodes[n])) {
      frame->remap(there);
    } else if (auto* const bytes = std::get_if<BytesNode>(&graph.nodes[n])) {
      bytes->to = *there(bytes->to);
      bytes->from = *there(bytes->from);
    }
    uses.update(n);
  }
}

}  // namespace

std::uint32_t remove_dead(Graph& graph, const std::vector<bool>& movable) {
  std::vector<bool> read(graph.buffers.size(), false);
  std::uint32_t removed = 0;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const std::vector<Use> uses = uses_of(*node);
    const bool needed =
        is_island(*node) || std::ranges::any_of(uses, [&](const Use& use) {
          return use.writes &&
                 (!movable[use.ref.buffer] || read[use.ref.buffer]);
        });
    if (needed) {
      for (const Use& use : uses) {
        read[use.ref.buffer] = read[use.ref.buffer] || use.reads;
      }
    } else if (!std::holds_alternative<Nothing>(*node)) {
      *node = Nothing{};
      ++removed;
    }
  }
  return removed;
}

std::vector<Moved> remove_copies(
    Graph& graph,
    const std::vector<bool>& movable,
    const std::vector<bool>& aligned,
    bool lists_alias) {
  AllUses uses(graph);
  std::vector<Moved> made;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::optional<Moved> move = whole_copy(graph, graph.nodes[n]);
    if (!move || !movable[move->from] || !aligned[move->to] ||
        !can_move(graph, uses, n, *move, lists_alias)) {
      continue;
    }
    graph.nodes[n] = Nothing{};
    uses.update(n);
    redirect(graph, uses, *move);
    made.push_back(*move);
  }
  return made;
}

// From the end, so that a chain collapses into its last buffer.
std::vector<Moved> reuse_lists(
    Graph& graph,
    const std::vector<bool>& movable,
    const std::vector<bool>& aligned,
    bool lists_alias) {
  std::vector<Moved> made;
  AllUses uses(graph);
  for (std::size_t n = lists_alias ? graph.nodes.size() : 0; n-- > 0;) {
    const auto* const frame = std::get_if<FrameCopy>(&graph.nodes[n]);
    if (frame == nullptr || frame->frame().slot != NPU_KIND_MULTI_MAP) {
      continue;
    }
    std::map<std::int32_t, std::vector<BufferId>> read;  // by entry
    const std::vector<Use> before = uses.of(n);
    for (const Use& use : before) {
      if (use.reads && !use.writes && use.entry >= 0) {
        read[use.entry].push_back(use.ref.buffer);
      }
    }
    for (const Use& to : before) {
      if (!to.writes || !aligned[to.ref.buffer]) {
        continue;
      }
      for (const BufferId from : read[to.entry]) {
        const Moved move{from, to.ref.buffer};
        if (from != move.to && movable[from] &&
            fills_from(graph, uses.of(n), move) &&
            can_reuse(graph, uses, n, move)) {
          redirect(graph, uses, move);
          made.push_back(move);
          break;
        }
      }
    }
  }
  return made;
}

}  // namespace npu::graph

// SPDX-License-Identifier: Apache-2.0
// A recording: nodes in the order they ran, and the buffers they use.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "graph/frame_copy.h"

namespace npu::graph {

struct Buffer {
  // Who owns the memory. kLocal: the arena of a replay, for what only frames
  // use. kBound: its address is bound from outside before the node that uses it
  // first runs (inputs, outputs, memory that islands read or write).
  enum Kind : std::uint8_t { kLocal, kBound };
  Kind kind = kBound;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the arena; set by plan_memory
  std::uint32_t first = 0;   // node that uses it first, and last
  std::uint32_t last = 0;
  bool used = false;
};

// Bytes copied or set on the device.
struct BytesNode {
  bool set = false;
  std::int32_t value = 0;
  std::uint64_t bytes = 0;
  Ref to;
  Ref from;
};

// Work that is no frame; the recording's owner does it.
struct IslandNode {
  std::uint32_t index = 0;
  std::vector<BufferId> buffers;
};

// Stands for a node that a pass removed.
struct Nothing {};

using Node = std::variant<FrameCopy, BytesNode, IslandNode, Nothing>;

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::uint64_t arena_bytes = 0;
  std::uint32_t arena_last = 0;  // node after which nothing needs the arena
};

// Buffers a node touches.
std::vector<BufferId> buffers_of(const Node& node);

// First and last use of every buffer; passes and tiles change them.
void find_lives(Graph& graph);

// Places in the arena for the local buffers: two that are in use at once never
// overlap. Aligned as the allocator aligns. Finds lives first.
//
// `held`, where given, says how many bytes outside of the arena a run holds at
// each node. The arena is there from the first node to the last that uses it,
// so it counts when it is empty too: buffers that are too large for it to stay
// within what is in use at the worst moment anyway become kBound, and are
// allocated for their own lives. Returns the sum of the local sizes, what it
// would take without sharing.
std::uint64_t plan_memory(
    Graph& graph, const std::vector<std::uint64_t>& held = {});

// What the allocator takes for so many bytes.
std::uint64_t allocated_bytes(std::uint64_t bytes);

// Empty, or what is wrong: a buffer that does not exist, a place outside its
// buffer, local buffers that overlap while both are in use, a use outside of
// the life that was planned.
std::string verify(const Graph& graph);

// Empty, or what is wrong with the places that nodes use: a buffer that does
// not exist, or bytes outside of it. Passes may change nothing else that makes
// a graph invalid.
std::string check_places(const Graph& graph);

// What runs nodes of a replay: on a stream, or a test's own.
class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual void frame(const npu_call& frame) = 0;
  virtual void bytes(const BytesNode& node, void* to, const void* from) = 0;
};

// Runs nodes [first, last), none of them an island, with buffers at `bases`.
void run_nodes(
    Graph& graph,
    std::size_t first,
    std::size_t last,
    std::span<void* const> bases,
    Launcher& launcher);

}  // namespace npu::graph

// SPDX-License-Identifier: Apache-2.0
// Passes over a recording's nodes, between recording and memory plan.
//
// A pass is a file in passes/, a row in passes/registry.cpp and a test. A node
// that a pass removes becomes Nothing, so that the others keep their numbers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "driver/call.h"
#include "graph/graph.h"
#include "graph/switches.h"

namespace npu::graph {

// What a pass may ask. Passes ask the driver's capabilities, never what kind of
// memory a device has.
struct PassContext {
  // By buffer. Only frames use a movable buffer: its memory may be elsewhere,
  // and its content is not needed after its last reader.
  std::vector<bool> movable;
  // By buffer: it begins where the allocator's blocks begin.
  std::vector<bool> aligned;
  // By buffer: the device of its memory.
  std::vector<std::int32_t> devices;
  // Device of the arena. Tiles are made only where all frames run there.
  bool one_device = true;
  // How many bytes of one list go into a tile.
  std::uint64_t tile_bytes = std::uint64_t{1} << 20;
  // Capabilities of a kind; null when the driver lacks it.
  std::function<const npu_op_caps*(std::uint32_t slot, std::uint32_t code)>
      caps;
  // The plan of a program that the driver takes as it is; nothing when it
  // declines.
  std::function<std::optional<PlanHandle>(Call& call, std::int32_t device)>
      plan;

  // Whether the frame's kernel may write its first list over list `list`.
  bool may_write_over(const npu_call& frame, std::uint32_t list) const;
};

// A buffer that now lives in another one.
struct Moved {
  BufferId from;
  BufferId to;
};

struct PassStats {
  // What the pass counts, in the order of Pass::counters.
  std::array<std::uint32_t, 2> counts{};
  std::vector<Moved> moved;
  // Where the node at each old place begins now, and one more entry for the
  // end. Empty: every node is where it was.
  std::vector<std::uint32_t> place;
};

struct Pass {
  // The word in NPU_GRAPH_OFF, the name in dumps, the row in the documents.
  const char* name;
  PassStats (*run)(Graph& graph, const PassContext& context);
  // Names of PassStats::counts in counts(); null where there is no second.
  std::array<const char*, 2> counters;
  // One sentence for docs/graph-mode.md.
  const char* doc;
};

// All passes, in the order they run.
std::span<const Pass> pass_registry();

struct PassRun {
  const Pass* pass;
  PassStats stats;
};

// Runs the passes of `rows` that are switched on. When one throws, or leaves a
// graph that is not valid, the graph is as if that pass were switched off, and
// the log says so once per pass. With NPU_GRAPH_DUMP, writes the nodes before
// the first pass and after each.
std::vector<PassRun> run_passes(
    Graph& graph,
    const PassContext& context,
    const Switches& on,
    std::span<const Pass> rows = pass_registry());

}  // namespace npu::graph

// SPDX-License-Identifier: Apache-2.0
// Which steps of a recording become graphs of the device.
#include <algorithm>
#include <span>

#include "aten/graph/maker.h"
#include "driver/registry.h"

namespace npu::graph {
namespace {

// Launching a graph of one frame is no cheaper than the frame.
constexpr std::uint32_t kFewest = 2;

// Memory that its steps have no more use for is given back after a segment.
constexpr std::uint64_t kMostHeld = 64 * 1024 * 1024;

}  // namespace

void Recording::Maker::find_segments() {
  const Driver& driver = active_driver();
  if (!DeviceGraph::is_offered(driver)) {
    return;
  }
  const auto fits = [&](const Step& step) {
    const std::span nodes(
        graph_.nodes.data() + step.first, step.last - step.first);
    return step.kind == Step::kFrames && step.numbered.empty() &&
           std::ranges::all_of(nodes, [&](const Node& node) {
             return DeviceGraph::takes(driver, node);
           });
  };
  const std::vector<Step>& steps = r_.steps_;
  for (std::size_t first = 0; first < steps.size();) {
    std::size_t last = first;
    std::uint64_t held = 0;
    while (last < steps.size() && fits(steps[last]) &&
           steps[last].device == steps[first].device &&
           (r_.captured_ || held < kMostHeld)) {
      for (const BufferId id : steps[last].ends) {
        held += graph_.buffers[id].bytes;
      }
      ++last;
    }
    if (last > first && steps[last - 1].last - steps[first].first >= kFewest) {
      Segment& made = r_.segments_.emplace_back();
      made.first = first;
      made.last = last;
    }
    first = std::max(last, first + 1);
  }
}

}  // namespace npu::graph

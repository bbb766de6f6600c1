// SPDX-License-Identifier: Apache-2.0
// Which steps of a recording become graphs of the device.
#include <algorithm>
#include <span>

#include "aten/graph/maker.h"
#include "driver/registry.h"
#include "runtime/device.h"

namespace npu::graph {
namespace {

// Launching a graph of one frame is no cheaper than the frame.
constexpr std::uint32_t kFewest = 2;

}  // namespace

void Recording::Maker::find_segments() {
  const Driver& driver = active_driver();
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
    while (last < steps.size() && fits(steps[last]) &&
           steps[last].device == steps[first].device) {
      ++last;
    }
    if (last > first && steps[last - 1].last - steps[first].first >= kFewest) {
      auto made = DeviceGraph::make(driver, driver_device(steps[first].device));
      if (made == nullptr) {
        return;
      }
      r_.segments_.push_back({first, last, std::move(made)});
    }
    first = std::max(last, first + 1);
  }
}

}  // namespace npu::graph

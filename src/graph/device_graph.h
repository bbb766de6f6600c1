// SPDX-License-Identifier: Apache-2.0
// Nodes of a recording as a graph of the device, where the driver has them
// (capture/1): one launch instead of a call per frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "driver/driver.h"
#include "graph/graph.h"

namespace npu::graph {

class DeviceGraph {
 public:
  // Pinned memory of the host that lives as long as the pointer, and until the
  // device has passed the graphs that were launched before it goes.
  using HostMemory = std::function<std::shared_ptr<void>(std::uint64_t bytes)>;

  static bool is_offered(const Driver& driver);
  // Only where the driver offers graphs.
  static std::unique_ptr<DeviceGraph> make(
      const Driver& driver, npu_device device);
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  ~DeviceGraph();

  // Whether the driver can record a node: no island, and a kernel that may be
  // captured.
  static bool takes(const Driver& driver, const Node& node);

  // Whether it holds these nodes with buffers at `bases`.
  bool is_at(std::span<void* const> bases) const noexcept;

  // Records nodes [first, last) with buffers at `bases`; nothing runs. Before a
  // launch there has to be memory at these addresses. `host_memory` is asked
  // for the host workspaces of frames. On an error it holds nothing.
  npu_status record(
      Graph& graph,
      std::size_t first,
      std::size_t last,
      std::span<void* const> bases,
      const HostMemory& host_memory);

  npu_status launch(npu_stream stream) {
    return capture_.launch(exec_, stream);
  }

 private:
  DeviceGraph(
      const Driver& driver, const npu_capture& capture, npu_device device)
      : driver_(driver), capture_(capture), device_(device) {}
  npu_status set_exec(npu_graph graph);
  void drop_exec() noexcept;

  const Driver& driver_;
  const npu_capture& capture_;
  const npu_device device_;
  npu_graph_exec exec_ = nullptr;
  std::vector<std::pair<BufferId, void*>> places_;  // it was recorded with
  std::vector<std::shared_ptr<void>> workspaces_;   // of the host
};

}  // namespace npu::graph

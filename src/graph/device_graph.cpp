// SPDX-License-Identifier: Apache-2.0
// Nodes of a recording as a graph of the device.
#include "graph/device_graph.h"

#include <algorithm>
#include <set>

namespace npu::graph {
namespace {

// Gives nodes to a stream that records; after the first error nothing more.
class ToStream final : public Launcher {
 public:
  ToStream(
      const Driver& driver,
      npu_stream stream,
      std::span<const std::shared_ptr<void>> workspaces)
      : driver_(driver), stream_(stream), workspaces_(workspaces) {}

  void frame(const npu_call& frame) override {
    npu_call call = frame;
    call.flags |= NPU_CALL_CAPTURE;
    if (call.host_workspace_bytes != 0) {
      call.host_workspace = workspaces_[next_++].get();
    }
    status = status == NPU_OK ? driver_.run(stream_, call) : status;
  }
  void bytes(const BytesNode& node, void* to, const void* from) override {
    if (status != NPU_OK) {
      return;
    }
    status =
        node.set
            ? driver_.memory().set_bytes(stream_, to, node.value, node.bytes)
            : driver_.memory().copy_on_device(stream_, to, from, node.bytes);
  }

  npu_status status = NPU_OK;

 private:
  const Driver& driver_;
  const npu_stream stream_;
  const std::span<const std::shared_ptr<void>> workspaces_;
  std::size_t next_ = 0;
};

}  // namespace

bool DeviceGraph::is_offered(const Driver& driver) {
  return driver.interface<npu_capture>() != nullptr &&
         (driver.table().call_flags_known & NPU_CALL_CAPTURE) != 0;
}

std::unique_ptr<DeviceGraph> DeviceGraph::make(
    const Driver& driver, npu_device device) {
  return std::unique_ptr<DeviceGraph>(
      new DeviceGraph(driver, *driver.interface<npu_capture>(), device));
}

DeviceGraph::~DeviceGraph() {
  drop_exec();
}

void DeviceGraph::drop_exec() noexcept {
  if (exec_ != nullptr) {
    capture_.destroy_exec(std::exchange(exec_, nullptr));
  }
  places_.clear();
  workspaces_.clear();
}

bool DeviceGraph::takes(const Driver& driver, const Node& node) {
  const auto* const frame = std::get_if<FrameCopy>(&node);
  if (frame == nullptr) {
    return !std::holds_alternative<IslandNode>(node);
  }
  const npu_call& call = frame->frame();
  const npu_op_caps* const caps = driver.caps(call.slot, call.code);
  return caps != nullptr && (caps->flags & NPU_CAP_CAPTURE) != 0 &&
         frame->numbers().source < 0;
}

bool DeviceGraph::is_at(std::span<void* const> bases) const noexcept {
  return exec_ != nullptr && std::ranges::all_of(places_, [&](const auto& at) {
           return bases[at.first] == at.second;
         });
}

npu_status DeviceGraph::record(
    Graph& graph,
    std::size_t first,
    std::size_t last,
    std::span<void* const> bases,
    const HostMemory& host_memory) {
  // Before the capture: taking memory could break it.
  std::vector<std::shared_ptr<void>> workspaces;
  for (std::size_t n = first; n < last; ++n) {
    const auto* const frame = std::get_if<FrameCopy>(&graph.nodes[n]);
    if (frame != nullptr && frame->frame().host_workspace_bytes != 0) {
      workspaces.push_back(host_memory(frame->frame().host_workspace_bytes));
    }
  }
  npu_stream stream = nullptr;
  npu_status status = driver_.stream().create(device_, 0, &stream);
  if (status != NPU_OK) {
    return status;
  }
  npu_graph made = nullptr;
  status = capture_.begin(device_, &stream, 1, 0);
  if (status == NPU_OK) {
    ToStream launcher(driver_, stream, workspaces);
    run_nodes(graph, first, last, bases, launcher);
    const npu_status ended = capture_.end(stream, &made);
    status = launcher.status != NPU_OK ? launcher.status : ended;
  }
  driver_.stream().destroy(stream);
  if (status == NPU_OK) {
    status = set_exec(made);
  }
  if (made != nullptr) {
    capture_.destroy_graph(made);
  }
  if (status != NPU_OK) {
    drop_exec();
    return status;
  }
  workspaces_ = std::move(workspaces);
  std::set<BufferId> used;
  for (std::size_t n = first; n < last; ++n) {
    for (const BufferId id : buffers_of(graph.nodes[n])) {
      used.insert(id);
    }
  }
  places_.clear();
  for (const BufferId id : used) {
    places_.emplace_back(id, bases[id]);
  }
  return NPU_OK;
}

npu_status DeviceGraph::set_exec(npu_graph graph) {
  if (exec_ != nullptr) {
    const npu_status updated = capture_.update(exec_, graph);
    if (updated != NPU_E_UNSUPPORTED) {
      return updated;
    }
    drop_exec();
  }
  return capture_.instantiate(graph, &exec_);
}

}  // namespace npu::graph

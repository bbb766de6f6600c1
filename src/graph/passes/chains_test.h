// SPDX-License-Identifier: Apache-2.0
// Small recordings, written by hand, for tests of passes that make programs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/plan_cache.h"
#include "graph/pass.h"
#include "npu/validate.h"

namespace npu::graph {

using Sizes = std::vector<std::int64_t>;

constexpr std::uint64_t kBytes = 96;  // 24 floats

// Addresses that stand for buffers: buffer i is at (i + 1) * 4096.
inline void* address(BufferId id, std::uint64_t offset = 0) {
  return reinterpret_cast<void*>((std::uintptr_t{id} + 1) * 4096 + offset);
}
inline std::optional<Ref> resolve(const void* at, std::uint64_t) {
  const auto value = reinterpret_cast<std::uintptr_t>(at);
  return Ref{static_cast<BufferId>(value / 4096 - 1), value % 4096};
}

struct View {
  BufferId buffer;
  Sizes sizes = {24};
  Sizes strides = {1};
  std::uint64_t offset = 0;
  npu_dtype dtype = NPU_F32;
};

inline npu_tensor tensor_of(const View& view) {
  npu_tensor made{};
  made.data = address(view.buffer, view.offset);
  made.storage = address(view.buffer);
  made.storage_bytes = kBytes;
  made.numel = 1;
  std::int64_t step = 1;
  bool contiguous = true;
  for (std::size_t d = view.sizes.size(); d-- > 0;) {
    contiguous = contiguous && view.strides[d] == step;
    step *= view.sizes[d];
    made.numel *= view.sizes[d];
  }
  made.sizes = view.sizes.data();
  made.strides = view.strides.data();
  made.dtype = view.dtype;
  made.ndim = static_cast<std::uint16_t>(view.sizes.size());
  made.flags = contiguous ? NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE : 0;
  return made;
}

inline Node add(View out, View x, View y, const char* label = "add") {
  const npu_tensor tensors[] = {tensor_of(out), tensor_of(x), tensor_of(y)};
  npu_binary_attrs attrs{};
  attrs.size = sizeof(attrs);
  npu_call call{};
  call.size = sizeof(call);
  call.slot = NPU_KIND_BINARY;
  call.label = label;
  call.compute_dtype = out.dtype;
  call.n_out = 1;
  call.n_in = 2;
  call.tensors = tensors;
  call.attrs = &attrs;
  call.attr_bytes = sizeof(attrs);
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

inline Node island(std::vector<BufferId> buffers) {
  return IslandNode{0, std::move(buffers)};
}

template <class... Nodes>
Graph graph(std::size_t buffers, Nodes&&... nodes) {
  Graph made;
  made.buffers.assign(buffers, {Buffer::kBound, kBytes});
  (made.nodes.push_back(std::forward<Nodes>(nodes)), ...);
  return made;
}

// Buffers below `kept` belong to the caller. Frames have to be right calls,
// and the graph right afterwards.
struct Fused {
  std::uint32_t frames;
  std::uint32_t programs;
};
inline Fused run_pass(
    const char* name, Graph& graph, const PassContext& context) {
  for (const Pass& pass : pass_registry()) {
    if (std::string(pass.name) == name) {
      const PassStats made = pass.run(graph, context);
      return {made.counts[0], made.counts[1]};
    }
  }
  return {};
}
inline Fused fused(
    Graph& graph,
    std::size_t kept,
    std::vector<std::int32_t> devices = {},
    const char* pass = "chains") {
  PassContext context;
  context.movable.assign(graph.buffers.size(), true);
  std::fill_n(context.movable.begin(), kept, false);
  devices.resize(graph.buffers.size());
  context.devices = devices;
  context.plan = [](Call& call, std::int32_t) {
    char text[256];
    EXPECT_EQ(npu_call_validate(&call.frame(), text, sizeof(text)), NPU_OK)
        << text;
    return std::optional<PlanHandle>(PlanHandle{});
  };
  const Fused made = run_pass(pass, graph, context);
  plan_memory(graph);
  EXPECT_EQ(verify(graph), "");
  return made;
}
inline const npu_call& program_at(const Graph& graph, std::size_t node) {
  const npu_call& call = std::get<FrameCopy>(graph.nodes[node]).frame();
  EXPECT_TRUE(
      call.slot == NPU_KIND_PROGRAM || call.slot == NPU_KIND_MULTI_PROGRAM);
  return call;
}
inline const npu_program_attrs& attrs_at(const Graph& graph, std::size_t node) {
  return *static_cast<const npu_program_attrs*>(program_at(graph, node).attrs);
}
inline std::vector<BufferId> written(const Graph& graph, std::size_t node) {
  std::vector<BufferId> found;
  for (const Use& use : std::get<FrameCopy>(graph.nodes[node]).uses()) {
    if (use.writes && std::ranges::find(found, use.ref.buffer) == found.end()) {
      found.push_back(use.ref.buffer);
    }
  }
  return found;
}

}  // namespace npu::graph

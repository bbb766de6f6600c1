// SPDX-License-Identifier: Apache-2.0
// Passes on small recordings, written by hand.
#include "graph/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "graph/switches.h"
#include "npu/kinds.h"

namespace npu::graph {
namespace {

constexpr std::uint64_t kBytes = 16;

// Addresses that stand for buffers: buffer i is at (i + 1) * 4096.
void* address(BufferId id) {
  return reinterpret_cast<void*>((std::uintptr_t{id} + 1) * 4096);
}
std::optional<Ref> resolve(const void* at, std::uint64_t) {
  const auto value = reinterpret_cast<std::uintptr_t>(at);
  return Ref{static_cast<BufferId>(value / 4096 - 1), value % 4096};
}

// A frame of whole buffers of four floats: out = f(in...).
Node frame(
    BufferId out,
    std::vector<BufferId> in,
    std::uint32_t slot = NPU_KIND_BINARY) {
  const std::int64_t sizes[] = {4};
  const std::int64_t strides[] = {1};
  std::vector<npu_tensor> tensors;
  in.insert(in.begin(), out);
  for (const BufferId id : in) {
    npu_tensor made{};
    made.data = made.storage = address(id);
    made.storage_bytes = kBytes;
    made.numel = 4;
    made.sizes = sizes;
    made.strides = strides;
    made.dtype = NPU_F32;
    made.ndim = 1;
    made.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
    tensors.push_back(made);
  }
  npu_call call{};
  call.size = sizeof(call);
  call.slot = slot;
  call.n_out = 1;
  call.n_in = static_cast<std::uint32_t>(tensors.size() - 1);
  call.tensors = tensors.data();
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

// multi_map over lists: entry i of `out` from entry i of `x`.
Node lists(std::vector<BufferId> out, std::vector<BufferId> x) {
  std::vector<void*> outs;
  std::vector<void*> xs;
  const std::vector<std::int64_t> numel(out.size(), 4);
  for (std::size_t i = 0; i < out.size(); ++i) {
    outs.push_back(address(out[i]));
    xs.push_back(address(x[i]));
  }
  std::array<npu_list, 2> both{};
  for (npu_list& list : both) {
    list.size = sizeof(npu_list);
    list.n = static_cast<std::uint32_t>(out.size());
    list.dtype = NPU_F32;
    list.numel = numel.data();
  }
  both[0].data = outs.data();
  both[1].data = xs.data();
  npu_call call{};
  call.size = sizeof(call);
  call.slot = NPU_KIND_MULTI_MAP;
  call.lists = both.data();
  call.n_lists = 2;
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

Node copy(BufferId to, BufferId from) {
  return BytesNode{false, 0, kBytes, {to, 0}, {from, 0}};
}
Node island(std::vector<BufferId> buffers) {
  return IslandNode{0, std::move(buffers)};
}

Graph graph(std::size_t buffers, std::vector<Node> nodes) {
  Graph made;
  for (std::size_t i = 0; i < buffers; ++i) {
    made.buffers.push_back({Buffer::kBound, kBytes});
  }
  made.nodes = std::move(nodes);
  return made;
}
// Buffers up to `n` belong to somebody else.
std::vector<bool> behind(std::size_t n, std::size_t all) {
  std::vector<bool> made(all, true);
  std::fill_n(made.begin(), n, false);
  return made;
}
std::size_t removed(const Graph& graph) {
  return static_cast<std::size_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) {
        return std::holds_alternative<Nothing>(n);
      }));
}
std::vector<Moved> without_copies(
    Graph& graph, std::size_t kept, bool lists_alias = true) {
  const std::size_t n = graph.buffers.size();
  auto moved = remove_copies(
      graph, behind(kept, n), std::vector<bool>(n, true), lists_alias);
  plan_memory(graph);
  EXPECT_EQ(verify(graph), "");
  return moved;
}

TEST(Dead, WhatNobodyReads) {
  // 0, 1 are inputs; 2 is read by the island, 3 and 4 by nobody in the end.
  std::vector<Node> nodes;
  nodes.push_back(frame(2, {0, 1}));
  nodes.push_back(frame(3, {0, 1}));
  nodes.push_back(frame(4, {3, 2}));
  nodes.push_back(frame(0, {1, 1}));
  nodes.push_back(island({2}));
  Graph g = graph(5, std::move(nodes));
  EXPECT_EQ(remove_dead(g, behind(2, 5)), 2u);
  EXPECT_FALSE(std::holds_alternative<Nothing>(g.nodes[0]));
  EXPECT_TRUE(std::holds_alternative<Nothing>(g.nodes[1]));
  EXPECT_TRUE(std::holds_alternative<Nothing>(g.nodes[2]));
  EXPECT_FALSE(std::holds_alternative<Nothing>(g.nodes[3]));
  EXPECT_EQ(remove_dead(g, behind(2, 5)), 0u);
}

TEST(Copies, AreComputedInPlace) {
  std::vector<Node> nodes;
  nodes.push_back(frame(2, {1, 1}));
  nodes.push_back(copy(0, 2));
  nodes.push_back(frame(1, {2, 2}));  // reads the value after the copy
  Graph g = graph(3, std::move(nodes));
  EXPECT_EQ(without_copies(g, 2).size(), 1u);
  EXPECT_EQ(removed(g), 1u);
  EXPECT_EQ(std::get<FrameCopy>(g.nodes[0]).uses()[0].ref.buffer, 0u);
  EXPECT_EQ(std::get<FrameCopy>(g.nodes[2]).uses()[2].ref.buffer, 0u);
}

TEST(Copies, StayWhereTheOldValueIsStillNeeded) {
  {  // read between
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {1, 1}));
    nodes.push_back(frame(3, {0, 0}));
    nodes.push_back(copy(0, 2));
    nodes.push_back(frame(1, {3, 3}));
    Graph g = graph(4, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 2).empty());
  }
  {  // read by the frame that makes the value, which may not alias
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {0, 1}));
    nodes.push_back(copy(0, 2));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 2).empty());
  }
  {  // written again while the copied value is still read
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {1, 1}));
    nodes.push_back(copy(0, 2));
    nodes.push_back(frame(0, {1, 1}));
    nodes.push_back(frame(1, {2, 2}));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 2).empty());
  }
  {  // an island looks at the value
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {1, 1}));
    nodes.push_back(island({2}));
    nodes.push_back(copy(0, 2));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 2).empty());
  }
  {  // the value belongs to somebody else too
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {1, 1}));
    nodes.push_back(copy(0, 2));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 3).empty());
  }
}

TEST(Copies, OfListsEntryByEntry) {
  const auto make = [](std::vector<BufferId> x) {
    std::vector<Node> nodes;
    nodes.push_back(lists({2, 3}, std::move(x)));
    nodes.push_back(copy(0, 2));
    nodes.push_back(copy(1, 3));
    return graph(4, std::move(nodes));
  };
  Graph same = make({0, 1});
  EXPECT_EQ(without_copies(same, 2).size(), 2u);
  Graph crossed = make({1, 0});  // entry 0 is read after entry 1 is written
  EXPECT_TRUE(without_copies(crossed, 2).empty());
  Graph apart = make({0, 1});
  EXPECT_TRUE(without_copies(apart, 2, /*lists_alias=*/false).empty());
}

std::vector<Moved> reused(Graph& graph, std::size_t kept, bool alias = true) {
  const std::size_t n = graph.buffers.size();
  auto moved =
      reuse_lists(graph, behind(kept, n), std::vector<bool>(n, true), alias);
  plan_memory(graph);
  EXPECT_EQ(verify(graph), "");
  return moved;
}
BufferId written(const Graph& graph, std::size_t node) {
  return std::get<FrameCopy>(graph.nodes[node]).uses()[0].ref.buffer;
}

TEST(Reuse, AChainOfListsWorksInItsLastBuffer) {
  // 0 -> 1 -> 2 -> 0: what a traced in-place chain becomes.
  std::vector<Node> nodes;
  nodes.push_back(lists({1}, {0}));
  nodes.push_back(lists({2}, {1}));
  nodes.push_back(lists({0}, {2}));
  Graph g = graph(3, std::move(nodes));
  Graph apart = g;
  EXPECT_EQ(reused(g, 1).size(), 2u);
  for (std::size_t n = 0; n < 3; ++n) {
    EXPECT_EQ(written(g, n), 0u);
  }
  EXPECT_TRUE(reused(apart, 1, /*alias=*/false).empty());
}

TEST(Reuse, NotWhereAValueIsStillNeeded) {
  {  // read behind
    std::vector<Node> nodes;
    nodes.push_back(lists({1}, {0}));
    nodes.push_back(lists({2}, {1}));
    nodes.push_back(lists({0}, {1}));
    nodes.push_back(island({2}));
    Graph g = graph(3, std::move(nodes));
    EXPECT_EQ(reused(g, 1).size(), 1u);  // 1 in 0, for its last reader
    EXPECT_EQ(written(g, 1), 2u);
  }
  {  // the old content of what is filled is read between
    std::vector<Node> nodes;
    nodes.push_back(lists({1}, {0}));
    nodes.push_back(lists({2}, {0}));
    nodes.push_back(lists({0}, {1}));
    nodes.push_back(island({2}));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(reused(g, 1).empty());
  }
  {  // an island reads it
    std::vector<Node> nodes;
    nodes.push_back(lists({1}, {0}));
    nodes.push_back(island({1}));
    nodes.push_back(lists({0}, {1}));
    Graph g = graph(2, std::move(nodes));
    EXPECT_TRUE(reused(g, 1).empty());
  }
  {  // entries are crossed
    std::vector<Node> nodes;
    nodes.push_back(lists({2, 3}, {0, 1}));
    nodes.push_back(lists({0, 1}, {3, 2}));
    Graph g = graph(4, std::move(nodes));
    EXPECT_TRUE(reused(g, 2).empty());
  }
  {  // it belongs to somebody else
    std::vector<Node> nodes;
    nodes.push_back(lists({1}, {0}));
    nodes.push_back(lists({0}, {1}));
    Graph g = graph(2, std::move(nodes));
    EXPECT_TRUE(reused(g, 2).empty());
  }
}

TEST(Switches, AreWords) {
  ::setenv("NPU_GRAPH_OFF", "copies, dead", 1);
  EXPECT_FALSE(Switches::read().copies);
  EXPECT_FALSE(Switches::read().dead);
  EXPECT_TRUE(Switches::read().host_calls);
  ::setenv("NPU_GRAPH_OFF", "copy", 1);
  EXPECT_ANY_THROW(Switches::read());
  ::unsetenv("NPU_GRAPH_OFF");
  EXPECT_TRUE(Switches::read().copies);
}

}  // namespace
}  // namespace npu::graph

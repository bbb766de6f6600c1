// SPDX-License-Identifier: Apache-2.0
// Runs of list frames split into tiles: same results, less memory in between.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/pass.h"
#include "npu/kinds.h"

namespace npu::graph {
namespace {

constexpr std::uint64_t kBytes = 1024;  // of an entry
constexpr std::int64_t kElements = kBytes / sizeof(float);

// Addresses that stand for buffers: buffer i is at (i + 1) * 4096.
void* address(BufferId id) {
  return reinterpret_cast<void*>((std::uintptr_t{id} + 1) * 4096);
}
std::optional<Ref> resolve(const void* at, std::uint64_t) {
  const auto value = reinterpret_cast<std::uintptr_t>(at);
  return Ref{static_cast<BufferId>(value / 4096 - 1), value % 4096};
}

// out[i] = x[i] * numbers[i], where numbers are given.
FrameCopy lists(
    const std::vector<BufferId>& out,
    const std::vector<BufferId>& x,
    std::vector<float> numbers = {}) {
  std::vector<void*> data[3];
  const std::vector<std::int64_t> numel(out.size(), kElements);
  const std::vector<std::int64_t> ones(out.size(), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    data[0].push_back(address(out[i]));
    data[1].push_back(address(x[i]));
  }
  for (float& number : numbers) {
    data[2].push_back(&number);
  }
  npu_list all[4]{};  // the last is absent
  for (std::size_t i = 0; i < 3; ++i) {
    all[i].size = sizeof(npu_list);
    all[i].n = static_cast<std::uint32_t>(out.size());
    all[i].dtype = NPU_F32;
    all[i].data = data[i].data();
    all[i].numel = i < 2 ? numel.data() : ones.data();
  }
  all[2].flags = NPU_TENSOR_HOST_SCALAR;
  all[3].dtype = NPU_ABSENT;
  npu_call call{};
  call.size = sizeof(call);
  call.slot = NPU_KIND_MULTI_MAP;
  call.lists = all;
  if (numbers.empty()) {
    all[2] = npu_list{};
  }
  call.n_lists = 4;
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

// Fills a buffer.
FrameCopy fill(BufferId out) {
  const std::int64_t sizes[] = {kElements};
  const std::int64_t strides[] = {1};
  npu_tensor to{};
  to.data = to.storage = address(out);
  to.storage_bytes = kBytes;
  to.numel = kElements;
  to.sizes = sizes;
  to.strides = strides;
  to.dtype = NPU_F32;
  to.ndim = 1;
  to.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  npu_call call{};
  call.size = sizeof(call);
  call.slot = NPU_KIND_FILL;
  call.n_out = 1;
  call.tensors = &to;
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

PassStats tile_lists(Graph& graph, std::uint64_t bytes) {
  PassContext context;
  context.tile_bytes = bytes;
  for (const Pass& pass : pass_registry()) {
    if (std::string(pass.name) == "tiles") {
      return pass.run(graph, context);
    }
  }
  return {};
}

Graph graph(std::size_t buffers, std::vector<Node> nodes) {
  Graph made;
  made.buffers.assign(buffers, Buffer{Buffer::kLocal, kBytes});
  made.nodes = std::move(nodes);
  return made;
}

// Runs nodes: a fill writes 1, a list frame adds 1 or multiplies.
class Machine final : public Launcher {
 public:
  void frame(const npu_call& call) override {
    ++frames;
    if (call.slot == NPU_KIND_FILL) {
      *static_cast<float*>(call.tensors[0].data) = 1;
      return;
    }
    for (std::uint32_t i = 0; i < call.lists[0].n; ++i) {
      const float x = *static_cast<const float*>(call.lists[1].data[i]);
      float& out = *static_cast<float*>(call.lists[0].data[i]);
      EXPECT_EQ(call.lists[0].numel[i], kElements);
      out = call.lists[2].n == 0
                ? x + 1
                : x * *static_cast<const float*>(call.lists[2].data[i]);
    }
  }
  void bytes(const BytesNode&, void*, const void*) override {}

  std::vector<float> run(Graph& graph, std::size_t n) {
    std::vector<std::vector<float>> memory(
        n, std::vector<float>(kElements, 0.5f));
    std::vector<void*> bases;
    for (std::size_t i = 0; i < n; ++i) {
      memory[i][0] = static_cast<float>(i);
      bases.push_back(memory[i].data());
    }
    run_nodes(graph, 0, graph.nodes.size(), bases, *this);
    std::vector<float> made;
    for (const std::vector<float>& buffer : memory) {
      made.push_back(buffer[0]);
    }
    return made;
  }
  int frames = 0;
};

// Inputs 0 to 3, temporaries 4 to 11, results 12 to 15.
std::vector<Node> chain() {
  std::vector<Node> nodes;
  nodes.emplace_back(lists({4, 5, 6, 7}, {0, 1, 2, 3}));
  nodes.emplace_back(fill(9));
  nodes.emplace_back(Nothing{});
  nodes.emplace_back(lists({8, 9, 10, 11}, {4, 9, 6, 7}, {2, 3, 4, 5}));
  nodes.emplace_back(lists({12, 13, 14, 15}, {8, 9, 10, 11}));
  return nodes;
}

TEST(Tiles, ComputeTheSame) {
  Graph whole = graph(16, chain());
  Graph tiled = graph(16, chain());
  const PassStats made = tile_lists(tiled, 2 * kBytes);
  EXPECT_EQ(made.counts[0], 1u);
  Machine a, b;
  EXPECT_EQ(a.run(whole, 16), b.run(tiled, 16));
  EXPECT_EQ(a.frames, 4);
  EXPECT_EQ(b.frames, 7);  // two tiles of three lists, and the fill once
  EXPECT_EQ(made.place, (std::vector<std::uint32_t>{0, 7, 7, 7, 7, 7}));
}

TEST(Tiles, TakeLessMemory) {
  Graph whole = graph(16, chain());
  Graph tiled = graph(16, chain());
  for (Graph* const each : {&whole, &tiled}) {
    for (BufferId id : {0, 1, 2, 3, 12, 13, 14, 15}) {
      each->buffers[id].kind = Buffer::kBound;
    }
  }
  tile_lists(tiled, kBytes);
  plan_memory(whole);
  plan_memory(tiled);
  EXPECT_EQ(verify(tiled), "");
  EXPECT_EQ(whole.arena_bytes, 7 * kBytes);
  EXPECT_EQ(tiled.arena_bytes, 2 * kBytes);
}

TEST(Tiles, NumbersGoWithTheirEntries) {
  Graph tiled = graph(16, chain());
  std::get<FrameCopy>(tiled.nodes[3]).bind_numbers_to(7);
  tile_lists(tiled, 2 * kBytes);
  const auto& first = std::get<FrameCopy>(tiled.nodes[2]);
  auto& second = std::get<FrameCopy>(tiled.nodes[5]);
  EXPECT_EQ(first.numbers().first, 0u);
  EXPECT_EQ(second.numbers().first, 2u);
  EXPECT_EQ(second.numbers().source, 7);
  EXPECT_EQ(second.numbers().n, 2u);
  EXPECT_EQ(second.number(0), 4.0);
  second.set_number(1, 9);
  EXPECT_EQ(*static_cast<const float*>(second.frame().lists[2].data[1]), 9.0f);
  EXPECT_EQ(first.number(1), 3.0);
}

// The step of its instruction makes the numbers, so the frame stays there.
TEST(Tiles, FramesThatDrawStayWhereTheyAre) {
  std::vector<Node> nodes = chain();
  std::get<FrameCopy>(nodes[1]).bind_draw_to(0);
  Graph tiled = graph(16, std::move(nodes));
  const PassStats made = tile_lists(tiled, 2 * kBytes);
  EXPECT_EQ(made.place, (std::vector<std::uint32_t>{0, 1, 2, 6, 6, 6}));
  EXPECT_EQ(std::get<FrameCopy>(tiled.nodes[1]).draw(), 0);
}

TEST(Tiles, EntriesThatMeetStayTogether) {
  // The second frame reads entry 1 of the first as its entry 0.
  std::vector<Node> nodes;
  nodes.emplace_back(lists({2, 3}, {0, 1}));
  nodes.emplace_back(lists({4, 5}, {3, 2}));
  Graph crossed = graph(6, std::move(nodes));
  const PassStats made = tile_lists(crossed, kBytes);
  EXPECT_EQ(made.counts[0], 0u);
  EXPECT_EQ(made.place, (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(Tiles, IslandsAndOtherSizesEndARun) {
  std::vector<Node> nodes = chain();
  nodes.emplace(nodes.begin() + 1, IslandNode{0, {}});
  nodes.emplace_back(lists({0}, {1}));
  Graph tiled = graph(16, std::move(nodes));
  const PassStats made = tile_lists(tiled, 2 * kBytes);
  EXPECT_EQ(made.counts[0], 1u);
  EXPECT_EQ(made.place, (std::vector<std::uint32_t>{0, 1, 2, 7, 7, 7, 7, 8}));
  Machine a, b;
  std::vector<Node> again = chain();
  again.emplace_back(lists({0}, {1}));
  Graph whole = graph(16, std::move(again));
  EXPECT_EQ(a.run(whole, 16), b.run(tiled, 16));
}

}  // namespace
}  // namespace npu::graph

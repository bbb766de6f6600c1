// SPDX-License-Identifier: Apache-2.0
// Frames that outlive their call, memory plans, replays without a driver.
#include "graph/graph.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace npu::graph {
namespace {

// A frame of one output and one input of four floats, with an attribute, a
// number on the host and a workspace.
struct Sample {
  explicit Sample(float* out, float* in) {
    tensors[0] = tensor(out);
    tensors[1] = tensor(in);
    tensors[2] = tensor(&number);
    tensors[2].flags = NPU_TENSOR_HOST_SCALAR;
    tensors[2].ndim = 0;
    frame.size = sizeof(npu_call);
    frame.slot = 7;
    frame.label = "test::frame";
    frame.n_out = 1;
    frame.n_in = 2;
    frame.tensors = tensors.data();
    frame.attrs = &attribute;
    frame.attr_bytes = sizeof(attribute);
  }
  npu_tensor tensor(float* data) const {
    npu_tensor made{};
    made.data = made.storage = data;
    made.storage_bytes = 16;
    made.numel = 4;
    made.sizes = sizes.data();
    made.strides = strides.data();
    made.dtype = NPU_F32;
    made.ndim = 1;
    return made;
  }
  std::array<std::int64_t, 1> sizes{4};
  std::array<std::int64_t, 1> strides{1};
  float number = 2.5f;
  std::int64_t attribute = 42;
  std::array<npu_tensor, 3> tensors{};
  npu_call frame{};
};

// Two buffers at these addresses.
Resolve two(const void* first, const void* second) {
  return [=](const void* at, std::uint64_t) -> std::optional<Ref> {
    for (const auto& [id, base] :
         {std::pair{0u, first}, std::pair{1u, second}}) {
      const auto* const p = static_cast<const std::byte*>(at);
      const auto* const b = static_cast<const std::byte*>(base);
      if (p >= b && p < b + 64) {
        return Ref{id, static_cast<std::uint64_t>(p - b)};
      }
    }
    return std::nullopt;
  };
}

TEST(FrameCopy, OutlivesWhatItWasMadeOf) {
  alignas(64) float a[16]{}, b[16]{}, c[16]{}, d[16]{};
  std::optional<FrameCopy> copy;
  {
    Sample sample(a + 4, b);
    copy = FrameCopy::make(sample.frame, nullptr, two(a, b));
    std::memset(&sample.sizes, 0xff, sizeof(sample.sizes));
    sample.number = 0;
    sample.attribute = 0;
  }
  ASSERT_TRUE(copy);
  void* const bases[] = {c, d};
  const npu_call& bound = copy->bind(bases);
  EXPECT_EQ(bound.slot, 7u);
  EXPECT_EQ(bound.tensors[0].data, c + 4);
  EXPECT_EQ(bound.tensors[1].data, d);
  EXPECT_EQ(bound.tensors[1].sizes[0], 4);
  EXPECT_EQ(*static_cast<const float*>(bound.tensors[2].data), 2.5f);
  EXPECT_EQ(*static_cast<const std::int64_t*>(bound.attrs), 42);
  EXPECT_EQ(copy->buffers(), (std::vector<BufferId>{0, 1}));
}

TEST(FrameCopy, CopiesAreBoundApart) {
  alignas(64) float a[16]{}, b[16]{}, c[16]{}, d[16]{};
  Sample sample(a, b);
  std::optional<FrameCopy> first =
      FrameCopy::make(sample.frame, nullptr, two(a, b));
  ASSERT_TRUE(first);
  FrameCopy second(*first);
  void* const one[] = {a, b};
  void* const other[] = {c, d};
  const npu_call& x = first->bind(one);
  const npu_call& y = second.bind(other);
  EXPECT_EQ(x.tensors[0].data, a);
  EXPECT_EQ(y.tensors[0].data, c);
  EXPECT_NE(x.tensors[0].sizes, y.tensors[0].sizes);
}

TEST(FrameCopy, RefusesWhatItCannotKeep) {
  alignas(64) float a[16]{}, b[16]{}, elsewhere[16]{};
  Sample unknown(a, elsewhere);
  EXPECT_FALSE(FrameCopy::make(unknown.frame, nullptr, two(a, b)));
  Sample carried(a, b);
  carried.frame.carry = a;
  EXPECT_FALSE(FrameCopy::make(carried.frame, nullptr, two(a, b)));
  Sample seeded(a, b);
  seeded.frame.rng.seed_ptr = reinterpret_cast<const std::uint64_t*>(a);
  EXPECT_FALSE(FrameCopy::make(seeded.frame, nullptr, two(a, b)));
}

// Each run takes a host workspace of its own, so the recorded one is left out.
TEST(FrameCopy, KeepsTheSizeOfAHostWorkspaceOnly) {
  alignas(64) float a[16]{}, b[16]{};
  Sample pinned(a, b);
  pinned.frame.host_workspace = a;
  pinned.frame.host_workspace_bytes = 48;
  const auto copy = FrameCopy::make(pinned.frame, nullptr, two(a, b));
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->frame().host_workspace, nullptr);
  EXPECT_EQ(copy->frame().host_workspace_bytes, 48u);
}

TEST(FrameCopy, TakesTheSeedAndOffsetOfEachRun) {
  alignas(64) float a[16]{}, b[16]{};
  Sample sample(a, b);
  auto copy = FrameCopy::make(sample.frame, nullptr, two(a, b));
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->draw(), -1);
  copy->bind_draw_to(3);
  npu_rng rng{};
  rng.seed = 7;
  rng.offset = 12;
  copy->set_rng(rng);
  const FrameCopy again(*copy);
  EXPECT_EQ(again.draw(), 3);
  EXPECT_EQ(again.frame().rng.seed, 7u);
  EXPECT_EQ(again.frame().rng.offset, 12u);
}

Node uses(std::vector<BufferId> buffers) {
  return IslandNode{0, std::move(buffers)};
}

TEST(Plan, BuffersThatNeverMeetShareMemory) {
  Graph graph;
  graph.buffers.assign(3, Buffer{Buffer::kLocal, 1000});
  graph.nodes.push_back(uses({0}));
  graph.nodes.push_back(uses({0, 1}));
  graph.nodes.push_back(uses({1, 2}));
  EXPECT_EQ(plan_memory(graph), 3u * 1024);
  EXPECT_EQ(graph.arena_bytes, 2u * 1024);
  EXPECT_EQ(graph.buffers[0].offset, graph.buffers[2].offset);
  EXPECT_EQ(verify(graph), "");
}

TEST(Plan, BoundAndUnusedBuffersTakeNoArena) {
  Graph graph;
  graph.buffers = {{Buffer::kBound, 4096}, {Buffer::kLocal, 4096}};
  graph.nodes.push_back(uses({0}));
  EXPECT_EQ(plan_memory(graph), 0u);
  EXPECT_EQ(graph.arena_bytes, 0u);
}

TEST(Plan, RandomGraphsNeverOverlap) {
  std::mt19937 draw(1);
  for (int round = 0; round < 200; ++round) {
    Graph graph;
    const std::uint32_t n = 1 + draw() % 30;
    for (std::uint32_t i = 0; i < n; ++i) {
      graph.buffers.push_back({Buffer::kLocal, 1 + draw() % 5000});
    }
    for (std::uint32_t i = 0; i < 40; ++i) {
      graph.nodes.push_back(uses(
          {static_cast<BufferId>(draw() % n),
           static_cast<BufferId>(draw() % n)}));
    }
    const std::uint64_t sum = plan_memory(graph);
    EXPECT_LE(graph.arena_bytes, sum);
    ASSERT_EQ(verify(graph), "");
  }
}

TEST(Plan, ArenaStaysWithinTheWorstMoment) {
  // Buffer 0 is large and gone before much is held outside.
  Graph graph;
  graph.buffers = {
      {Buffer::kLocal, 8192}, {Buffer::kLocal, 512}, {Buffer::kLocal, 512}};
  for (const BufferId id : {0u, 1u, 2u, 2u}) {
    graph.nodes.push_back(uses({id}));
  }
  // With 8192 bytes outside at the end an arena of 8192 would be one too many.
  const std::vector<std::uint64_t> held = {0, 0, 8192, 8192};
  EXPECT_EQ(plan_memory(graph, held), 8192u + 1024u);
  EXPECT_EQ(graph.buffers[0].kind, Buffer::kBound);
  EXPECT_EQ(graph.buffers[1].kind, Buffer::kLocal);
  EXPECT_EQ(graph.arena_bytes, 512u);
  EXPECT_EQ(graph.arena_last, 3u);
  EXPECT_EQ(verify(graph), "");
}

TEST(Plan, ArenaThatEndsBeforeTheWorstMomentMayBeLarge) {
  Graph graph;
  graph.buffers = {{Buffer::kLocal, 8192}};
  graph.nodes.push_back(uses({0}));
  graph.nodes.push_back(uses({}));
  plan_memory(graph, {0, 8192});
  EXPECT_EQ(graph.arena_bytes, 8192u);
  EXPECT_EQ(graph.arena_last, 0u);
}

TEST(Plan, RandomGraphsNeverTakeMoreThanTheirLiveSet) {
  std::mt19937 draw(2);
  for (int round = 0; round < 200; ++round) {
    Graph graph;
    const std::uint32_t n = 1 + draw() % 30;
    for (std::uint32_t i = 0; i < n; ++i) {
      graph.buffers.push_back({Buffer::kLocal, 1 + draw() % 5000});
    }
    std::vector<std::uint64_t> held;
    for (std::uint32_t i = 0; i < 40; ++i) {
      graph.nodes.push_back(uses({static_cast<BufferId>(draw() % n)}));
      held.push_back(512 * (draw() % 30));
    }
    plan_memory(graph, held);
    ASSERT_EQ(verify(graph), "");
    std::uint64_t live = 0;
    std::uint64_t taken = 0;
    for (std::uint32_t at = 0; at < held.size(); ++at) {
      std::uint64_t all = held[at];
      std::uint64_t outside = held[at];
      for (const Buffer& buffer : graph.buffers) {
        const bool alive =
            buffer.used && buffer.first <= at && at <= buffer.last;
        all += alive ? allocated_bytes(buffer.bytes) : 0;
        outside += alive && buffer.kind == Buffer::kBound
                       ? allocated_bytes(buffer.bytes)
                       : 0;
      }
      live = std::max(live, all);
      taken = std::max(
          taken, outside + (at <= graph.arena_last ? graph.arena_bytes : 0));
    }
    ASSERT_LE(taken, live);
  }
}

TEST(Verify, SaysWhatIsWrong) {
  Graph graph;
  graph.buffers.assign(2, Buffer{Buffer::kLocal, 1000});
  graph.nodes.push_back(uses({0, 1}));
  plan_memory(graph);
  graph.buffers[1].offset = graph.buffers[0].offset;
  EXPECT_NE(verify(graph).find("overlap"), std::string::npos);
  graph.nodes.push_back(uses({9}));
  EXPECT_NE(verify(graph).find("does not exist"), std::string::npos);
  graph.nodes.back() = uses({0});
  EXPECT_NE(verify(graph).find("outside of its life"), std::string::npos);
  graph.nodes.back() = BytesNode{true, 0, 2000, {0, 0}, {}};
  plan_memory(graph);
  EXPECT_NE(verify(graph).find("bytes outside"), std::string::npos);
}

class Log final : public Launcher {
 public:
  void frame(const npu_call& frame) override {
    out.push_back(frame.tensors[0].data);
  }
  void bytes(const BytesNode& node, void* to, const void* from) override {
    if (node.set) {
      std::memset(to, node.value, node.bytes);
    } else {
      std::memcpy(to, from, node.bytes);
    }
  }
  std::vector<void*> out;
};

TEST(Run, BindsAtEveryReplay) {
  alignas(64) float a[16]{}, b[16]{}, c[16]{};
  Sample sample(a, b);
  Graph graph;
  graph.buffers.assign(2, Buffer{Buffer::kBound, 64});
  graph.nodes.push_back(*FrameCopy::make(sample.frame, nullptr, two(a, b)));
  graph.nodes.push_back(BytesNode{true, 1, 4, {1, 4}, {}});
  graph.nodes.push_back(BytesNode{false, 0, 8, {0, 0}, {1, 0}});
  Log log;
  for (float* const first : {a, c}) {
    void* const bases[] = {first, b};
    run_nodes(graph, 0, graph.nodes.size(), bases, log);
    EXPECT_EQ(reinterpret_cast<std::uint32_t*>(first)[1], 0x01010101u);
  }
  EXPECT_EQ(log.out, (std::vector<void*>{a, c}));
}

}  // namespace
}  // namespace npu::graph

// SPDX-License-Identifier: Apache-2.0
// Pass chains on small recordings, written by hand.
#include "graph/passes/chains_test.h"

namespace npu::graph {
namespace {

Node fill(BufferId out, double value) {
  const View view{out};
  const npu_tensor tensor = tensor_of(view);
  npu_fill_attrs attrs{};
  attrs.size = sizeof(attrs);
  attrs.value = {NPU_SCALAR_FLOAT, 0, 0, value, 0};
  npu_call call{};
  call.size = sizeof(call);
  call.slot = NPU_KIND_FILL;
  call.n_out = 1;
  call.tensors = &tensor;
  call.attrs = &attrs;
  call.attr_bytes = sizeof(attrs);
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

// multi_map mul over lists, y absent: x times 3.
Node thrice(std::vector<BufferId> out, std::vector<BufferId> x) {
  std::vector<void*> data[2];
  const std::vector<std::int64_t> numel(out.size(), 24);
  npu_list lists[5] = {};
  for (std::size_t k = 0; k < 2; ++k) {
    for (const BufferId id : k == 0 ? out : x) {
      data[k].push_back(address(id));
    }
    lists[k].size = sizeof(npu_list);
    lists[k].n = static_cast<std::uint32_t>(out.size());
    lists[k].dtype = NPU_F32;
    lists[k].numel = numel.data();
    lists[k].data = data[k].data();
  }
  npu_multi_map_attrs attrs{};
  attrs.size = sizeof(attrs);
  attrs.op = NPU_BINARY_MUL;
  attrs.a = {NPU_SCALAR_FLOAT, 0, 0, 3, 0};
  npu_call call{};
  call.size = sizeof(call);
  call.slot = NPU_KIND_MULTI_MAP;
  call.code = NPU_MULTI_MAP_BINARY;
  call.lists = lists;
  call.n_lists = 5;
  call.attrs = &attrs;
  call.attr_bytes = sizeof(attrs);
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

TEST(Chains, ValuesBetweenFramesAreRegisters) {
  Graph g =
      graph(4, add({2}, {0}, {1}, "a"), add({3}, {2}, {1}, "b"), island({3}));
  const Fused made = fused(g, 2);
  EXPECT_EQ(made.frames, 2u);
  EXPECT_EQ(made.programs, 1u);
  EXPECT_TRUE(std::holds_alternative<Nothing>(g.nodes[0]));
  EXPECT_EQ(written(g, 1), std::vector<BufferId>{3});
  EXPECT_EQ(attrs_at(g, 1).n_ops, 2u);
  EXPECT_FALSE(g.buffers[2].used);
  EXPECT_STREQ(program_at(g, 1).label, "a + b");
}

TEST(Chains, WhatOthersNeedIsAnOutput) {
  {  // read behind the chain
    Graph g = graph(
        4, add({2}, {0}, {1}), add({3}, {2}, {1}), island({3}), island({2}));
    fused(g, 2);
    EXPECT_EQ(written(g, 1), (std::vector<BufferId>{2, 3}));
  }
  {  // memory from outside the graph
    Graph g = graph(4, add({2}, {0}, {1}), add({3}, {2}, {1}));
    fused(g, 4);
    EXPECT_EQ(written(g, 1), (std::vector<BufferId>{2, 3}));
  }
}

TEST(Chains, EndAtIslandsAndOtherDevices) {
  Graph g = graph(4, add({2}, {0}, {1}), island({1}), add({3}, {2}, {1}));
  EXPECT_EQ(fused(g, 4).programs, 0u);
  Graph two = graph(6, add({2}, {0}, {1}), add({5}, {3}, {4}));
  EXPECT_EQ(fused(two, 6, {0, 0, 0, 1, 1, 1}).programs, 0u);
  Graph bytes = graph(
      4,
      add({2}, {0}, {1}),
      BytesNode{false, 0, kBytes, {1, 0}, {0, 0}},
      add({3}, {2}, {1}));
  EXPECT_EQ(fused(bytes, 4).programs, 0u);
}

TEST(Chains, InPlaceFramesKeepTheirOrder) {
  // 0 is read, overwritten, read again.
  Graph g =
      graph(3, add({2}, {0}, {1}), add({0}, {0}, {1}), add({2}, {2}, {0}));
  EXPECT_EQ(fused(g, 3).programs, 1u);
  const npu_program_attrs& attrs = attrs_at(g, 2);
  ASSERT_EQ(attrs.n_ops, 3u);
  EXPECT_EQ(npu_program_at(attrs.ops, 1).in[0], 0);   // the old value
  EXPECT_EQ(npu_program_at(attrs.ops, 2).in[0], 12);  // the first sum
  EXPECT_EQ(npu_program_at(attrs.ops, 2).in[1], 13);  // the new value
  EXPECT_EQ(attrs.outs[0], 14u);
  EXPECT_EQ(attrs.outs[1], 13u);
  const npu_tensor& in = program_at(g, 2).tensors[NPU_PROGRAM_OUTPUTS];
  EXPECT_NE(in.flags & NPU_TENSOR_ALIAS, 0u);
  EXPECT_EQ(in.alias_of, 1u);
}

TEST(Chains, PlacesThatOverlapInPartAreLeftAlone) {
  const View half{2, {12}, {1}};
  const View other_half{2, {12}, {1}, 48};
  const View shifted{2, {12}, {1}, 24};
  const View out{3, {12}, {1}};
  {  // written in part, read elsewhere
    Graph g = graph(
        4, add(half, {0, {12}, {1}}, {1, {12}, {1}}), add(out, shifted, half));
    EXPECT_EQ(fused(g, 4).programs, 0u);
  }
  {  // read, then written in part
    Graph g = graph(4, add(out, half, half), add(shifted, out, out));
    EXPECT_EQ(fused(g, 4).programs, 0u);
  }
  {  // two parts of one buffer: reads do not meet
    Graph g =
        graph(5, add(out, half, other_half), add({4, {12}, {1}}, out, shifted));
    EXPECT_EQ(fused(g, 5).programs, 1u);
  }
}

TEST(Chains, OneSizesForAll) {
  const View wide{2, {4, 6}, {6, 1}};
  const View row{1, {4, 6}, {0, 1}};
  {  // a frame of contiguous operands takes those of the others
    Graph g = graph(
        4,
        add(wide, {0, {4, 6}, {6, 1}}, row),
        add({3}, {2}, {0}),
        island({3}));
    EXPECT_EQ(fused(g, 2).programs, 1u);
    EXPECT_EQ(program_at(g, 1).tensors[0].ndim, 2);
  }
  {  // and the other way round
    Graph g = graph(
        4,
        add({2}, {0}, {0}),
        add({3, {4, 6}, {6, 1}}, wide, row),
        island({3}));
    EXPECT_EQ(fused(g, 2).programs, 1u);
    EXPECT_EQ(program_at(g, 1).tensors[0].ndim, 2);
  }
  {  // another order of the same elements
    const View turned{2, {6, 4}, {1, 6}};
    Graph g = graph(
        4,
        add(wide, {0, {4, 6}, {6, 1}}, row),
        add({3, {6, 4}, {4, 1}}, turned, turned),
        island({3}));
    EXPECT_EQ(fused(g, 2).programs, 0u);
  }
  {  // another number of elements
    Graph g = graph(
        4,
        add({2}, {0}, {1}),
        add({3, {12}, {1}}, {0, {12}, {1}}, {1, {12}, {1}}));
    EXPECT_EQ(fused(g, 4).programs, 0u);
  }
}

TEST(Chains, ListsAndFillsOfTheirEntries) {
  Graph g = graph(
      6,
      thrice({2, 3}, {0, 1}),
      thrice({4, 5}, {2, 3}),
      thrice({0, 1}, {4, 5}));
  EXPECT_EQ(fused(g, 2).frames, 3u);
  EXPECT_EQ(program_at(g, 2).slot, NPU_KIND_MULTI_PROGRAM);
  EXPECT_EQ(written(g, 2), (std::vector<BufferId>{0, 1}));
  EXPECT_EQ(attrs_at(g, 2).n_ops, 4u);  // the number 3, once

  Graph crossed = graph(4, thrice({2, 3}, {0, 1}), thrice({0, 1}, {3, 2}));
  EXPECT_EQ(fused(crossed, 4).programs, 0u);
}

TEST(Chains, FillsBecomeNumbers) {
  {  // read by the chain alone
    Graph g = graph(4, fill(2, 5), add({3}, {0}, {2}), island({3}));
    EXPECT_EQ(fused(g, 2).frames, 2u);
    EXPECT_EQ(npu_program_at(attrs_at(g, 1).ops, 0).slot, NPU_KIND_FILL);
    EXPECT_FALSE(g.buffers[2].used);
  }
  {  // read behind it too
    Graph g = graph(4, fill(2, 5), add({3}, {0}, {2}), island({3, 2}));
    EXPECT_EQ(fused(g, 2).programs, 0u);
  }
  {  // written again
    Graph g = graph(
        4, fill(2, 5), add({2}, {0}, {2}), add({3}, {2}, {0}), island({3}));
    EXPECT_EQ(fused(g, 2).programs, 1u);  // the two sums
    EXPECT_TRUE(std::holds_alternative<FrameCopy>(g.nodes[0]));
  }
}

TEST(Chains, AreAsLongAsAProgram) {
  Graph g = graph(2);
  for (int i = 0; i < 150; ++i) {
    g.nodes.push_back(add({1}, {1}, {0}));
  }
  EXPECT_EQ(fused(g, 2).programs, 3u);
  Graph many = graph(40);
  for (BufferId i = 1; i < 40; ++i) {
    many.nodes.push_back(add({i}, {0}, {0}));
  }
  EXPECT_EQ(fused(many, 40).programs, 10u);  // four outputs each
}

TEST(Chains, StayFramesWhereTheDriverDeclines) {
  Graph g = graph(4, add({2}, {0}, {1}), add({3}, {2}, {1}));
  PassContext context;
  context.movable = {false, false, true, false};
  context.devices.assign(4, 0);
  context.plan = [](Call&, std::int32_t) {
    return std::optional<PlanHandle>();
  };
  const Fused made = run_pass("chains", g, context);
  EXPECT_EQ(made.programs, 0u);
  EXPECT_TRUE(std::holds_alternative<FrameCopy>(g.nodes[0]));
}

}  // namespace
}  // namespace npu::graph

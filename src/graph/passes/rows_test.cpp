// SPDX-License-Identifier: Apache-2.0
// Pass rows on small recordings, written by hand.
#include "graph/passes/chains_test.h"

namespace npu::graph {
namespace {

// 4 rows of 6.
View matrix(BufferId id) {
  return {id, {4, 6}, {6, 1}};
}

Node reduce(
    View out,
    View in,
    std::uint64_t dims,
    std::uint32_t code = NPU_REDUCE_SUM) {
  const npu_tensor tensors[] = {tensor_of(out), npu_tensor{}, tensor_of(in)};
  npu_reduce_attrs attrs{};
  attrs.size = sizeof(attrs);
  attrs.dims = dims;
  attrs.keepdim = out.sizes.size() == in.sizes.size() ? 1 : 0;
  npu_call call{};
  call.size = sizeof(call);
  call.slot = NPU_KIND_REDUCE;
  call.code = code;
  call.label = "reduce";
  call.n_out = 2;
  call.n_in = 1;
  call.tensors = tensors;
  call.attrs = &attrs;
  call.attr_bytes = sizeof(attrs);
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

Fused rows(Graph& graph, std::size_t kept) {
  return fused(graph, kept, {}, "rows");
}

TEST(Rows, AChainEndsInItsReduction) {
  for (const bool keepdim : {false, true}) {
    const View out = keepdim ? View{3, {4, 1}, {1, 1}} : View{3, {4}, {1}};
    Graph g = graph(
        4,
        add(matrix(2), matrix(0), matrix(1), "a"),
        reduce(out, matrix(2), 2),
        island({3}));
    const Fused made = rows(g, 2);
    EXPECT_EQ(made.frames, 2u);
    EXPECT_EQ(made.programs, 1u);
    const npu_call& call = program_at(g, 1);
    EXPECT_EQ(call.code, std::uint32_t{NPU_PROGRAM_ROWS});
    EXPECT_STREQ(call.label, "a + reduce");
    EXPECT_EQ(written(g, 1), std::vector<BufferId>{3});
    EXPECT_EQ(call.tensors[0].ndim, 2);
    EXPECT_EQ(call.tensors[0].sizes[0], 4);
    EXPECT_EQ(call.tensors[0].sizes[1], 1);
    EXPECT_FALSE(g.buffers[2].used);
  }
}

TEST(Rows, WhatIsReducedStaysWhereItIsReadLater) {
  Graph g = graph(
      4,
      add(matrix(2), matrix(0), matrix(1)),
      reduce({3, {4}, {1}}, matrix(2), 2),
      island({3}),
      island({2}));
  EXPECT_EQ(rows(g, 2).programs, 1u);
  EXPECT_EQ(written(g, 1), (std::vector<BufferId>{2, 3}));
}

TEST(Rows, FlatChainsTakeTheSizesOfTheReduction) {
  Graph g = graph(
      4, add({2}, {0}, {1}), reduce({3, {4}, {1}}, matrix(2), 2), island({3}));
  EXPECT_EQ(rows(g, 2).programs, 1u);
  EXPECT_EQ(program_at(g, 1).tensors[NPU_PROGRAM_OUTPUTS].ndim, 2);
}

// Operands of an elementwise frame have as few dimensions as they can.
TEST(Rows, DimensionsThatWereMergedAreTheSameRows) {
  Graph g = graph(
      4,
      add({2, {4, 6}, {6, 1}}, {0, {4, 6}, {6, 1}}, {1, {4, 6}, {1, 0}}),
      reduce({3, {2, 2, 1}, {2, 1, 1}}, {2, {2, 2, 6}, {12, 6, 1}}, 4),
      island({3}));
  EXPECT_EQ(rows(g, 2).programs, 1u);
  const npu_tensor& out = program_at(g, 1).tensors[0];
  EXPECT_EQ(out.ndim, 2);
  EXPECT_EQ(out.sizes[0], 4);
  // Rows that end inside of a dimension are none.
  Graph other = graph(
      4,
      add({2, {4, 6}, {6, 1}}, {0, {4, 6}, {6, 1}}, {1, {4, 6}, {1, 0}}),
      reduce({3, {12, 1}, {1, 1}}, {2, {12, 2}, {2, 1}}, 2),
      island({3}));
  EXPECT_EQ(rows(other, 2).programs, 0u);
}

TEST(Rows, SeveralReductionsOfOneChain) {
  Graph g = graph(
      5,
      add(matrix(2), matrix(0), matrix(1)),
      reduce({3, {4}, {1}}, matrix(2), 2, NPU_REDUCE_MAX),
      reduce({4, {4}, {1}}, matrix(2), 2, NPU_REDUCE_SUM),
      island({3, 4}));
  EXPECT_EQ(rows(g, 2).programs, 1u);
  EXPECT_EQ(attrs_at(g, 2).n_ops, 3u);
}

// Frames behind the last reduction are another chain's, and one that reads the
// reduction cannot join.
TEST(Rows, EndAtTheLastReduction) {
  Graph g = graph(
      6,
      add(matrix(2), matrix(0), matrix(1)),
      reduce({3, {4}, {1}}, matrix(2), 2),
      add(matrix(4), matrix(0), matrix(2)),
      add(matrix(5), matrix(4), {3, {4, 6}, {1, 0}}),
      island({5}));
  EXPECT_EQ(rows(g, 2).frames, 2u);
  EXPECT_EQ(written(g, 1), (std::vector<BufferId>{2, 3}));
  EXPECT_EQ(fused(g, 2).programs, 1u);
  EXPECT_TRUE(std::holds_alternative<Nothing>(g.nodes[2]));
}

TEST(Rows, AreLeftAlone) {
  {  // over the first dimension
    Graph g = graph(
        4,
        add(matrix(2), matrix(0), matrix(1)),
        reduce({3, {6}, {1}}, matrix(2), 1));
    EXPECT_EQ(rows(g, 4).programs, 0u);
  }
  {  // of memory that no frame before it made
    Graph g = graph(
        4,
        add(matrix(2), matrix(0), matrix(1)),
        reduce({3, {4}, {1}}, matrix(1), 2));
    EXPECT_EQ(rows(g, 4).programs, 0u);
  }
  {  // a code that programs do not have
    Graph g = graph(
        4,
        add(matrix(2), matrix(0), matrix(1)),
        reduce({3, {4}, {1}}, matrix(2), 2, NPU_REDUCE_PROD));
    EXPECT_EQ(rows(g, 4).programs, 0u);
  }
  {  // into memory that the chain reads
    Graph g = graph(
        3,
        add(matrix(2), matrix(0), matrix(1)),
        reduce({0, {4}, {1}}, matrix(2), 2));
    EXPECT_EQ(rows(g, 3).programs, 0u);
  }
  {  // chains alone
    Graph g = graph(
        4,
        add(matrix(2), matrix(0), matrix(1)),
        add(matrix(3), matrix(2), matrix(1)));
    EXPECT_EQ(rows(g, 4).programs, 0u);
  }
  {  // a driver that declines
    Graph g = graph(
        4,
        add(matrix(2), matrix(0), matrix(1)),
        reduce({3, {4}, {1}}, matrix(2), 2));
    PassContext context;
    context.movable.assign(4, false);
    context.devices.resize(4);
    context.plan = [](Call&, std::int32_t) {
      return std::optional<PlanHandle>();
    };
    EXPECT_EQ(run_pass("rows", g, context).programs, 0u);
    EXPECT_TRUE(std::holds_alternative<FrameCopy>(g.nodes[0]));
  }
}

}  // namespace
}  // namespace npu::graph

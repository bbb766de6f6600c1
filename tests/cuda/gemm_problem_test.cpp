// SPDX-License-Identifier: Apache-2.0
// Frames of kind gemm as problems of cuBLASLt.
#include "gemm_problem.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace npu::cuda {
namespace {

using Shape = std::vector<std::int64_t>;

// out, pre, a, b, c, bias
struct Frame {
  std::vector<npu_tensor> tensors = std::vector<npu_tensor>(6);
  std::deque<Shape> shapes;
  npu_gemm_attrs attrs{};
  npu_call call{};

  Frame() {
    attrs.size = sizeof(attrs);
    attrs.alpha = {NPU_SCALAR_FLOAT, 0, 1, 1, 0};
    attrs.beta = {NPU_SCALAR_FLOAT, 0, 1, 1, 0};
  }
  Frame& set(
      int place, Shape sizes, Shape strides = {}, npu_dtype dtype = NPU_F32) {
    if (strides.empty()) {
      strides = Shape(sizes.size());
      std::int64_t step = 1;
      for (std::size_t d = sizes.size(); d-- > 0;) {
        strides[d] = step;
        step *= sizes[d];
      }
    }
    npu_tensor& t = tensors[static_cast<std::size_t>(place)];
    t.dtype = dtype;
    t.ndim = static_cast<std::uint16_t>(sizes.size());
    t.numel = 1;
    for (const std::int64_t size : sizes) {
      t.numel *= size;
    }
    t.sizes = shapes.emplace_back(sizes).data();
    t.strides = shapes.emplace_back(strides).data();
    return *this;
  }
  std::uint64_t problem(GemmProblem& out) {
    call = npu_call{};
    call.size = sizeof(call);
    call.slot = NPU_KIND_GEMM;
    call.n_out = 2;
    call.n_in = 4;
    call.tensors = tensors.data();
    call.attrs = &attrs;
    call.attr_bytes = sizeof(attrs);
    return gemm_problem(call, out);
  }
};

TEST(gemm_problem, PlainMatrices) {
  GemmProblem p;
  EXPECT_EQ(
      Frame().set(0, {3, 5}).set(2, {3, 7}).set(3, {7, 5}).problem(p), 0u);
  EXPECT_EQ(p.m, 3);
  EXPECT_EQ(p.n, 5);
  EXPECT_EQ(p.k, 7);
  EXPECT_EQ(p.batches, 1);
  EXPECT_EQ(p.a.ld, 7);
  EXPECT_EQ(p.b.ld, 5);
  EXPECT_EQ(p.out.ld, 5);
  EXPECT_FALSE(p.a.transposed || p.b.transposed || p.staged);
}

TEST(gemm_problem, TransposesAreStrides) {
  GemmProblem p;
  EXPECT_EQ(
      Frame()
          .set(0, {3, 5})
          .set(2, {3, 7}, {1, 4})
          .set(3, {7, 5}, {1, 7})
          .problem(p),
      0u);
  EXPECT_TRUE(p.a.transposed && p.b.transposed);
  EXPECT_EQ(p.a.ld, 4);
  EXPECT_EQ(p.b.ld, 7);
}

TEST(gemm_problem, OneRowOrColumnMayHaveAnyStride) {
  GemmProblem p;
  // A row of a matrix with strange strides of its one row; a column.
  EXPECT_EQ(
      Frame().set(0, {1, 5}).set(2, {1, 7}, {1, 1}).set(3, {7, 5}).problem(p),
      0u);
  EXPECT_GE(p.a.ld, 7);
  EXPECT_EQ(
      Frame().set(0, {4, 1}).set(2, {4, 7}).set(3, {7, 1}, {1, 1}).problem(p),
      0u);
  EXPECT_GE(p.b.ld, 1);
}

TEST(gemm_problem, BatchesMergeOrAreCopied) {
  GemmProblem p;
  EXPECT_EQ(
      Frame()
          .set(0, {2, 6, 3, 5})
          .set(2, {2, 6, 3, 7})
          .set(3, {2, 6, 7, 5}, {0, 0, 5, 1})
          .problem(p),
      0u);
  EXPECT_EQ(p.batches, 12);
  EXPECT_EQ(p.a.batch_offset, 21);
  EXPECT_EQ(p.b.batch_offset, 0) << "one matrix for all";
  EXPECT_EQ(p.out.batch_offset, 15);
  // Heads before the sequence: the two batch dimensions do not merge.
  EXPECT_EQ(
      Frame()
          .set(0, {2, 6, 3, 5})
          .set(2, {2, 6, 3, 7}, {126, 7, 42, 1})
          .set(3, {2, 6, 7, 5})
          .problem(p),
      UINT64_C(1) << 2);
  // One of them is shared, the other is not.
  EXPECT_EQ(
      Frame()
          .set(0, {2, 6, 3, 5})
          .set(2, {2, 6, 3, 7})
          .set(3, {2, 6, 7, 5}, {35, 0, 5, 1})
          .problem(p),
      UINT64_C(1) << 3);
}

TEST(gemm_problem, WhatHasNoContiguousLinesIsCopied) {
  GemmProblem p;
  EXPECT_EQ(
      Frame()
          .set(0, {3, 5}, {1, 3})
          .set(2, {3, 7}, {14, 2})
          .set(3, {7, 5}, {0, 1})
          .problem(p),
      1u | UINT64_C(1) << 2 | UINT64_C(1) << 3);
}

TEST(gemm_problem, BiasOfTheResultsDtypeIsAnEpilogue) {
  GemmProblem p;
  EXPECT_EQ(
      Frame()
          .set(0, {3, 5}, {}, NPU_BF16)
          .set(2, {3, 7}, {}, NPU_BF16)
          .set(3, {7, 5}, {}, NPU_BF16)
          .set(5, {5}, {}, NPU_BF16)
          .problem(p),
      0u);
  EXPECT_TRUE(p.has_bias);
  EXPECT_FALSE(p.staged);
  EXPECT_EQ(
      Frame()
          .set(0, {3, 5}, {}, NPU_BF16)
          .set(2, {3, 7}, {}, NPU_BF16)
          .set(3, {7, 5}, {}, NPU_BF16)
          .set(5, {5}, {}, NPU_F32)
          .problem(p),
      0u);
  EXPECT_TRUE(p.staged);
}

TEST(gemm_problem, AnEpilogueOrAnExpandedSummandIsASecondKernel) {
  GemmProblem p;
  Frame relu;
  relu.set(0, {3, 5}).set(2, {3, 7}).set(3, {7, 5});
  relu.attrs.epilogue = NPU_GEMM_EPILOGUE_RELU;
  EXPECT_EQ(relu.problem(p), 0u);
  EXPECT_TRUE(p.staged);
  EXPECT_EQ(
      Frame()
          .set(0, {3, 5})
          .set(2, {3, 7})
          .set(3, {7, 5})
          .set(4, {3, 5}, {0, 1})
          .problem(p),
      0u);
  EXPECT_TRUE(p.staged);
  EXPECT_EQ(
      Frame()
          .set(0, {3, 5})
          .set(2, {3, 7})
          .set(3, {7, 5})
          .set(4, {3, 5})
          .problem(p),
      0u);
  EXPECT_FALSE(p.staged);
}

}  // namespace
}  // namespace npu::cuda

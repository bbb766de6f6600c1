// SPDX-License-Identifier: Apache-2.0
// A gemm frame as a problem of cuBLASLt: a pure function of shapes, strides and
// dtypes.
#pragma once

#include <cstdint>

#include "npu/kinds.h"
#include "npu/op.h"

namespace npu::cuda {

// A matrix as cuBLASLt sees it, which counts columns first: what is rows here
// is columns there, so every matrix is its transpose.
struct GemmMatrix {
  std::int64_t ld = 0;            // elements from line to line
  std::int64_t batch_offset = 0;  // elements from matrix to matrix
  bool transposed = false;        // lines are columns of the frame's matrix
};

struct GemmProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batches = 1;
  GemmMatrix a;
  GemmMatrix b;
  GemmMatrix c;  // direct: what beta multiplies
  GemmMatrix out;
  npu_dtype dtype = NPU_ABSENT;  // of a and b
  // The product goes into a workspace in float32 (float64), and a second kernel
  // adds c and the bias, applies the epilogue and rounds once.
  bool staged = false;
  bool has_c = false;
  bool has_bias = false;
};

// Bits of the operands (counted as verdict.mask counts) that have to be
// contiguous first; 0: the problem is complete. UINT64_MAX: cuBLASLt has no
// such product.
std::uint64_t gemm_problem(const npu_call& call, GemmProblem& out);

}  // namespace npu::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel.h"
#include "kernels/layout.h"

namespace npu::cuda {

// out = epilogue(alpha * product + beta * c + bias); pre has what the epilogue
// is given.
struct FinishArgs {
  Layout<4> layout;     // out, pre, c, bias
  const void* product;  // contiguous, float32 or (wide) float64
  char* out;
  char* pre;
  const char* c;
  const char* bias;
  npu_dtype out_dtype;
  npu_dtype pre_dtype;
  npu_dtype c_dtype;
  npu_dtype bias_dtype;
  std::uint32_t epilogue;
  std::uint32_t wide;
  double alpha;
  double beta;
};

npu_status finish_gemm(Stream& stream, const FinishArgs& args);

}  // namespace npu::cuda

// SPDX-License-Identifier: Apache-2.0
// Rows of one dtype that lie densely, 16 bytes at a time (wide_rows.cu).
#pragma once

#include "kernels/kernel.h"

namespace npu::cuda {

struct WideSoftmaxArgs {
  std::int64_t rows;
  int length;
  std::uint8_t log;
  std::uint8_t aligned;  // every row begins at a 16-byte address
  void* out;
  const void* in;   // of the backward: the gradient
  const void* in2;  // of the backward: the result; else null
};

struct WideNormArgs {
  std::int64_t rows;
  int length;
  std::uint8_t wide_statistics;  // float32 beside halves
  float eps;
  void* out;  // of the backward: the gradient of `in`
  void* mean;
  void* rstd;
  const void* in;
  const void* weight;
  const void* bias;
  const void* grad_out;  // null: forward
  float* sums;           // [pieces][2][length]
  std::int64_t pieces;
};

bool is_wide_dtype(npu_dtype dtype) noexcept;
// Do the kernels take these addresses and lengths? Sets `aligned`.
bool wide_softmax_fits(WideSoftmaxArgs& args, npu_dtype dtype) noexcept;
bool wide_norm_fits(const WideNormArgs& args, npu_dtype dtype) noexcept;

npu_status wide_softmax(
    Stream& stream, const WideSoftmaxArgs& args, npu_dtype dtype);
npu_status wide_layer_norm(
    Stream& stream, const WideNormArgs& args, npu_dtype dtype);
// For the gradients of weight and bias: sums of pieces of the rows.
npu_status wide_column_sums(
    Stream& stream, const WideNormArgs& args, npu_dtype dtype);

}  // namespace npu::cuda

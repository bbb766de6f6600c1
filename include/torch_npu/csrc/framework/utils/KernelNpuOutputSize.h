// SPDX-License-Identifier: Apache-2.0
// Sizes of results: free functions once, op_infer:: now.
#pragma once

#include "torch_npu/csrc/framework/utils/Shared.h"
#include "torch_npu/named_call.h"

namespace at_npu::native {

inline at::IntArrayRef input_same_output_size(const at::Tensor& input) {
  return input.sizes();
}
NPU_NAMED_EXPORT c10::SmallVector<int64_t, SIZE> array_to_small_vector(
    at::IntArrayRef shape);
NPU_NAMED_EXPORT c10::SmallVector<int64_t, SIZE> broadcast_ops_npu_output_size(
    at::IntArrayRef a, at::IntArrayRef b);
NPU_NAMED_EXPORT c10::SmallVector<int64_t, SIZE> broadcast_ops_npu_output_size(
    const at::Tensor& a, const at::Tensor& b);
NPU_NAMED_EXPORT c10::SmallVector<int64_t, SIZE> reduce_ops_npu_output_size(
    const at::Tensor& self, at::IntArrayRef dims, bool keepdim);

}  // namespace at_npu::native

namespace op_infer {
using at_npu::native::array_to_small_vector;
using at_npu::native::broadcast_ops_npu_output_size;
using at_npu::native::input_same_output_size;
using at_npu::native::reduce_ops_npu_output_size;
}  // namespace op_infer

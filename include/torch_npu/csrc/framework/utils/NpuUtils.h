// SPDX-License-Identifier: Apache-2.0
// Views and formats of operands.
#pragma once

#include "torch_npu/csrc/framework/utils/Shared.h"
#include "torch_npu/named_call.h"

namespace at_npu::native {

class NPU_NAMED_EXPORT NpuUtils {
 public:
  // Whether a kernel may write the tensor as it lies.
  static bool check_match(const at::Tensor* tensor);
  static at::Tensor format_contiguous(const at::Tensor& source);
  static at::Tensor format_contiguous_add_copy_optimize(
      const at::Tensor& source);
  // Copies y into the view x.
  static void format_fresh_view(at::Tensor& x, const at::Tensor& y);
  // Slices of the 5HD format are never physical here.
  static bool check_5d_5d_match(const at::Tensor& tensor);
  static bool is_npu(const at::Tensor& tensor);
};

}  // namespace at_npu::native

// SPDX-License-Identifier: Apache-2.0
// Outputs: made, checked, resized.
#pragma once

#include <initializer_list>
#include <tuple>

#include "torch_npu/csrc/framework/utils/Shared.h"
#include "torch_npu/named_call.h"

namespace at_npu::native {

class NPU_NAMED_EXPORT OpPreparation {
 public:
  static UnifiedResult binary_op_check(
      at::Tensor& out,
      const at::Tensor& a,
      const at::Tensor& b,
      bool check_mem_overlap);
  static UnifiedResult comparison_op_check(
      at::Tensor& out,
      const at::Tensor& a,
      const at::Tensor& b,
      bool check_mem_overlap);
  static UnifiedResult unary_op_check(
      at::Tensor& out, const at::Tensor& a, bool check_mem_overlap);
  static void nullary_op(at::Tensor& out);
  static UnifiedResult reduce_op_check(at::Tensor& out, const at::Tensor& a);
  static UnifiedResult reduce_op_check(
      at::Tensor& out1, at::Tensor& out2, const at::Tensor& a);

  // No overlap, the dtype expected; resized where sizes differ.
  static void CheckOut(
      const std::initializer_list<at::Tensor>& inputs,
      at::Tensor& output,
      at::Tensor dst);
  static void CheckOut(
      const std::initializer_list<at::Tensor>& inputs,
      at::Tensor& output,
      at::Tensor dst,
      at::IntArrayRef shape);
  static void CheckOut(
      const std::initializer_list<at::Tensor>& inputs,
      at::Tensor& output,
      int64_t format,
      at::ScalarType dtype,
      at::IntArrayRef shape);
  static void check_tensor(
      const std::initializer_list<at::Tensor>& inputs,
      at::Tensor& output,
      at::Tensor expect);
  static void check_tensor(
      const std::initializer_list<at::Tensor>& inputs,
      at::Tensor& output,
      at::IntArrayRef expect_size);
  static void check_tensor(
      const std::initializer_list<at::Tensor>& inputs,
      at::Tensor& output,
      at::Tensor expect,
      at::IntArrayRef expect_size);
  static void check_tensor(
      const std::initializer_list<at::Tensor>& inputs,
      at::Tensor& output,
      at::ScalarType expect_dtype,
      at::IntArrayRef expect_size);
  static void CheckMemory(
      const std::initializer_list<at::Tensor>& inputs,
      const std::initializer_list<at::Tensor>& outputs);
  static void check_memory(
      const std::initializer_list<at::Tensor>& inputs,
      const std::initializer_list<at::Tensor>& outputs) {
    CheckMemory(inputs, outputs);
  }
  static at::Tensor CastBackToOriFormat(const at::Tensor& tensor);
  static at::Tensor& CastBackToOriFormat(at::Tensor& tensor);
  static at::Tensor cast_to_ori_format(const at::Tensor& tensor) {
    return CastBackToOriFormat(tensor);
  }

  static at::Tensor ApplyTensor(const at::Tensor& src);
  static at::Tensor ApplyTensor(const at::Tensor& src, at::IntArrayRef sizes);
  static at::Tensor ApplyTensor(
      const at::Tensor& src, const c10::TensorOptions& options);
  static at::Tensor ApplyTensor(
      at::IntArrayRef sizes,
      const c10::TensorOptions& options,
      const at::Tensor& src);
  static at::Tensor ApplyTensorWithFormat(
      const at::Tensor& src, int64_t format, bool keep_format = false);
  static at::Tensor ApplyTensorWithFormat(
      const at::Tensor& src,
      at::IntArrayRef sizes,
      int64_t format,
      bool keep_format = false);
  static at::Tensor ApplyTensorWithFormat(
      at::IntArrayRef sizes,
      const c10::TensorOptions& options,
      int64_t format,
      bool keep_format = false);
  static at::Tensor ApplyTensorWithSizes(
      at::IntArrayRef sizes, const c10::TensorOptions& options);

  static at::Tensor apply_tensor(const at::Tensor& src) {
    return ApplyTensor(src);
  }
  static at::Tensor apply_tensor(const at::Tensor& src, at::IntArrayRef sizes) {
    return ApplyTensor(src, sizes);
  }
  static at::Tensor apply_tensor(
      const at::Tensor& src, const c10::TensorOptions& options) {
    return ApplyTensor(src, options);
  }
  static at::Tensor apply_tensor(
      at::IntArrayRef sizes,
      const c10::TensorOptions& options,
      const at::Tensor& src) {
    return ApplyTensor(sizes, options, src);
  }
  static at::Tensor apply_tensor_with_format(
      const at::Tensor& src, int64_t format, bool keep_format = false) {
    return ApplyTensorWithFormat(src, format, keep_format);
  }
  static at::Tensor apply_tensor_with_format(
      const at::Tensor& src,
      at::IntArrayRef sizes,
      int64_t format,
      bool keep_format = false) {
    return ApplyTensorWithFormat(src, sizes, format, keep_format);
  }
  static at::Tensor apply_tensor_with_format(
      at::IntArrayRef sizes,
      const c10::TensorOptions& options,
      int64_t format,
      bool keep_format = false) {
    return ApplyTensorWithFormat(sizes, options, format, keep_format);
  }
  static at::Tensor apply_tensor_with_sizes(
      at::IntArrayRef sizes, const c10::TensorOptions& options) {
    return ApplyTensorWithSizes(sizes, options);
  }
  static at::Tensor apply_tensor_without_format(const at::Tensor& src) {
    return ApplyTensorWithSizes(src.sizes(), src.options());
  }
  static at::Tensor apply_tensor_without_format(
      const at::Tensor& src, at::IntArrayRef sizes) {
    return ApplyTensorWithSizes(sizes, src.options());
  }
  static at::Tensor apply_tensor_without_format(
      at::IntArrayRef sizes, const c10::TensorOptions& options) {
    return ApplyTensorWithSizes(sizes, options);
  }
  static bool IsCPUScalar(const at::Tensor& tensor);
  static bool is_scalar_wrapped_to_tensor(const at::Tensor& tensor);
  static int64_t get_tensor_npu_format(const at::Tensor& tensor);
};

}  // namespace at_npu::native

// SPDX-License-Identifier: Apache-2.0
// The tables of PyTorch's CPU kernels, asked for the CPU's. Compiled on its
// own, with the instruction sets torch was compiled for as macros (CMake finds
// out): they are parameters of the function that asks a table.
#include "aten/host_device/cpu_kernels.h"

#include <c10/util/Exception.h>

#if defined(NPU_HAS_CPU_KERNELS)
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/native/layer_norm.h>
#include <ATen/native/transformers/attention.h>

// NPU_CALL(sum_stub, iter): the kernel of that table with these arguments.
#define NPU_CALL(table, ...) \
  at::native::table(c10::DeviceType::CPU, __VA_ARGS__)
#else
#define NPU_CALL(table, ...) \
  TORCH_INTERNAL_ASSERT(false, #table " is not known for this torch")
#endif

namespace npu::host_device::cpu {

bool kernels_available() noexcept {
#if defined(NPU_HAS_CPU_KERNELS)
  return true;
#else
  return false;
#endif
}

#define NPU_DEFINE(name)                                     \
  void name([[maybe_unused]] at::TensorIteratorBase& iter) { \
    NPU_CALL(name##_stub, iter);                             \
  }
NPU_FOR_EACH_CPU_MAP(NPU_DEFINE)
#undef NPU_DEFINE

void add(
    [[maybe_unused]] at::TensorIteratorBase& iter,
    [[maybe_unused]] const c10::Scalar& alpha) {
  NPU_CALL(add_stub, iter, alpha);
}

void sum([[maybe_unused]] at::TensorIterator& iter) {
  NPU_CALL(sum_stub, iter);
}

void layer_norm(
    [[maybe_unused]] const at::Tensor& input,
    [[maybe_unused]] const at::Tensor& weight,
    [[maybe_unused]] const at::Tensor& bias,
    [[maybe_unused]] std::int64_t rows,
    [[maybe_unused]] std::int64_t size,
    [[maybe_unused]] double eps,
    [[maybe_unused]] at::Tensor* out,
    [[maybe_unused]] at::Tensor* mean,
    [[maybe_unused]] at::Tensor* rstd) {
  NPU_CALL(
      LayerNormKernel, input, weight, bias, rows, size, eps, out, mean, rstd);
}

void layer_norm_backward(
    [[maybe_unused]] const at::Tensor& grad,
    [[maybe_unused]] const at::Tensor& input,
    [[maybe_unused]] const at::Tensor& mean,
    [[maybe_unused]] const at::Tensor& rstd,
    [[maybe_unused]] const at::Tensor& weight,
    [[maybe_unused]] std::int64_t rows,
    [[maybe_unused]] std::int64_t size,
    [[maybe_unused]] at::Tensor* grad_input,
    [[maybe_unused]] at::Tensor* grad_weight,
    [[maybe_unused]] at::Tensor* grad_bias) {
  NPU_CALL(
      LayerNormBackwardKernel,
      grad,
      input,
      mean,
      rstd,
      weight,
      rows,
      size,
      grad_input,
      grad_weight,
      grad_bias);
}

void flash_attention(
    [[maybe_unused]] const at::Tensor& out,
    [[maybe_unused]] const at::Tensor& logsumexp,
    [[maybe_unused]] const at::Tensor& query,
    [[maybe_unused]] const at::Tensor& key,
    [[maybe_unused]] const at::Tensor& value,
    [[maybe_unused]] bool causal,
    [[maybe_unused]] const std::optional<at::Tensor>& mask,
    [[maybe_unused]] std::optional<double> scale) {
  NPU_CALL(
      flash_attention_kernel,
      out,
      logsumexp,
      query,
      key,
      value,
      /*dropout_p=*/0.0,
      causal,
      mask,
      scale);
}

void flash_attention_backward(
    [[maybe_unused]] const at::Tensor& grad_query,
    [[maybe_unused]] const at::Tensor& grad_key,
    [[maybe_unused]] const at::Tensor& grad_value,
    [[maybe_unused]] const at::Tensor& grad,
    [[maybe_unused]] const at::Tensor& query,
    [[maybe_unused]] const at::Tensor& key,
    [[maybe_unused]] const at::Tensor& value,
    [[maybe_unused]] const at::Tensor& out,
    [[maybe_unused]] const at::Tensor& logsumexp,
    [[maybe_unused]] bool causal,
    [[maybe_unused]] const std::optional<at::Tensor>& mask,
    [[maybe_unused]] std::optional<double> scale) {
  NPU_CALL(
      flash_attention_backward_kernel,
      grad_query,
      grad_key,
      grad_value,
      grad,
      query,
      key,
      value,
      out,
      logsumexp,
      /*dropout_p=*/0.0,
      causal,
      mask,
      scale);
}

}  // namespace npu::host_device::cpu

// SPDX-License-Identifier: Apache-2.0
// PyTorch's CPU kernels below its operators, as plain functions.
//
// PyTorch picks such a kernel from a table (DispatchStub) by instruction set.
// They take tensors and iterators of any device and read data pointers, so npu
// tensors whose memory host code may read will do: see direct.h. How a table is
// asked depends on how torch was compiled; where that is unknown there are none
// (kernels_available() is false) and the others must not be called.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>

namespace npu::host_device::cpu {

bool kernels_available() noexcept;

// Elementwise: what PyTorch's structured kernel calls with the iterator that
// its meta function built. The iterator is one that is_direct() (direct.h)
// takes.
#define NPU_FOR_EACH_CPU_MAP(X) \
  X(div_true)                   \
  X(erf)                        \
  X(erfc)                       \
  X(exp)                        \
  X(exp2)                       \
  X(expm1)                      \
  X(log)                        \
  X(log10)                      \
  X(log1p)                      \
  X(log2)                       \
  X(mul)                        \
  X(rsqrt)                      \
  X(sigmoid)                    \
  X(sigmoid_backward)           \
  X(silu)                       \
  X(silu_backward)              \
  X(sin)                        \
  X(cos)                        \
  X(sqrt)                       \
  X(tan)                        \
  X(tanh)                       \
  X(tanh_backward)
#define NPU_DECLARE(name) void name(at::TensorIteratorBase& iter);
NPU_FOR_EACH_CPU_MAP(NPU_DECLARE)
#undef NPU_DECLARE
void add(at::TensorIteratorBase& iter, const c10::Scalar& alpha);

// `iter` made by TensorIterator::reduce_op.
void sum(at::TensorIterator& iter);

// `rows` of `size` elements each; all tensors contiguous, of one dtype.
void layer_norm(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    std::int64_t rows,
    std::int64_t size,
    double eps,
    at::Tensor* out,
    at::Tensor* mean,
    at::Tensor* rstd);
// Undefined outputs are not wanted.
void layer_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& weight,
    std::int64_t rows,
    std::int64_t size,
    at::Tensor* grad_input,
    at::Tensor* grad_weight,
    at::Tensor* grad_bias);

// Query, key and value are (batch, heads, rows, size), the outputs (batch,
// rows, heads, ...).
void flash_attention(
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    bool causal,
    const std::optional<at::Tensor>& mask,
    std::optional<double> scale);
// Everything is (batch, rows, heads, ...); the gradients begin as zeros.
void flash_attention_backward(
    const at::Tensor& grad_query,
    const at::Tensor& grad_key,
    const at::Tensor& grad_value,
    const at::Tensor& grad,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    bool causal,
    const std::optional<at::Tensor>& mask,
    std::optional<double> scale);

}  // namespace npu::host_device::cpu

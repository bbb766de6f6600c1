// SPDX-License-Identifier: Apache-2.0
// Softmax and log_softmax by PyTorch's CPU functions on npu tensors (Note
// [Direct]).
#include <ATen/ops/_log_softmax_backward_data_native.h>
#include <ATen/ops/_log_softmax_native.h>
#include <ATen/ops/_softmax_backward_data_native.h>
#include <ATen/ops/_softmax_native.h>

#include "aten/ops/op.h"
#include "aten/ops/run_structured.h"
#include "attempts/nn.h"

namespace npu::ops {

namespace {

// Others are copied or viewed first.
bool lies_for_softmax(const at::Tensor& tensor) {
  return is_float(tensor) && tensor.dim() > 0 && tensor.is_contiguous();
}

template <class Native>
bool softmax_forward(
    Outputs& out, const at::Tensor& self, std::int64_t dim, bool widens) {
  if (widens || !lies_for_softmax(self)) {
    return false;
  }
  run_structured<Native>(out, self, dim, widens);
  return true;
}

template <class Native>
bool softmax_backward(
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& output,
    std::int64_t dim,
    at::ScalarType input_dtype) {
  if (!lies_for_softmax(grad) || !lies_for_softmax(output) ||
      !same_dtype(grad, output) || input_dtype != grad.scalar_type() ||
      grad.sizes() != output.sizes()) {
    return false;
  }
  run_structured<Native>(out, grad, output, dim, input_dtype);
  return true;
}

}  // namespace

bool softmax_direct(
    Outputs& out, const at::Tensor& self, std::int64_t dim, bool widens) {
  return softmax_forward<at::native::structured_softmax_cpu_out>(
      out, self, dim, widens);
}

bool log_softmax_direct(
    Outputs& out, const at::Tensor& self, std::int64_t dim, bool widens) {
  return softmax_forward<at::native::structured_log_softmax_cpu_out>(
      out, self, dim, widens);
}

bool softmax_grad_direct(
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& output,
    std::int64_t dim,
    at::ScalarType input_dtype) {
  return softmax_backward<at::native::structured_softmax_backward_cpu_out>(
      out, grad, output, dim, input_dtype);
}

bool log_softmax_grad_direct(
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& output,
    std::int64_t dim,
    at::ScalarType input_dtype) {
  return softmax_backward<at::native::structured_log_softmax_backward_cpu_out>(
      out, grad, output, dim, input_dtype);
}

}  // namespace npu::ops

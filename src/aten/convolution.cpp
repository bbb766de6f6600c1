// SPDX-License-Identifier: Apache-2.0
// Convolution: PyTorch sends every backend but its own to the overrideable
// pair. Ours is CPU's convolution, which picks oneDNN or a native kernel.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "aten/frame.h"
#include "aten/ladder/ladder.h"

namespace npu {
namespace {

using OptTensor = std::optional<at::Tensor>;
using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr char kForward[] = "aten::convolution_overrideable";
constexpr char kBackward[] = "aten::convolution_backward_overrideable";

at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const OptTensor& bias,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    std::int64_t groups) {
  const at::Tensor no_bias;
  check_same_device(kForward, {&input, &weight, bias ? &*bias : &no_bias});
  static const ladder::CpuOp op("aten::convolution", "", kForward);
  return op.call<at::Tensor>(
      input,
      weight,
      bias,
      stride,
      padding,
      dilation,
      transposed,
      output_padding,
      groups);
}

Grads convolution_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    std::int64_t groups,
    std::array<bool, 3> mask) {
  check_same_device(kBackward, {&grad, &input, &weight});
  // The overrideable form leaves out the bias's size: one per output channel.
  const std::array<std::int64_t, 1> bias_sizes = {grad.size(1)};
  c10::List<bool> wanted;
  for (const bool want : mask) {
    wanted.push_back(want);
  }
  static const ladder::CpuOp op("aten::convolution_backward", "", kBackward);
  return op.call<Grads>(
      grad,
      input,
      weight,
      at::OptionalIntArrayRef(bias_sizes),
      stride,
      padding,
      dilation,
      transposed,
      output_padding,
      groups,
      std::move(wanted));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace npu

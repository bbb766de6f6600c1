// SPDX-License-Identifier: Apache-2.0
// Convolution: PyTorch sends every backend but its own to the overrideable
// pair. Ours asks the driver for the kinds; without them it is CPU's
// convolution, which picks oneDNN or a native kernel.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "aten/core/factories.h"
#include "aten/ladder/ladder.h"
#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr char kForward[] = "aten::convolution_overrideable";
constexpr char kBackward[] = "aten::convolution_backward_overrideable";

struct Geometry {
  at::IntArrayRef stride;
  at::IntArrayRef padding;
  at::IntArrayRef dilation;
  at::IntArrayRef output_padding;
  std::int64_t groups;
  bool transposed;

  std::size_t spatial() const {
    return stride.size();
  }
  template <class Attrs>
  Attrs attrs() const {
    Attrs out{};
    out.spatial = static_cast<std::int64_t>(spatial());
    for (std::size_t d = 0; d < 3; ++d) {
      const bool used = d < spatial();
      out.stride[d] = used ? stride[d] : 1;
      out.padding[d] = used ? padding[d] : 0;
      out.dilation[d] = used ? dilation[d] : 1;
      out.output_padding[d] = used ? output_padding[d] : 0;
    }
    out.groups = groups;
    out.transposed = transposed ? 1 : 0;
    return out;
  }
  // A batch with channels that fit the weights; what is wrong with others the
  // CPU rung says.
  bool fits(const at::Tensor& input, const at::Tensor& weight) const {
    const auto dims = static_cast<std::int64_t>(spatial()) + 2;
    const bool lists = padding.size() == spatial() &&
                       dilation.size() == spatial() &&
                       output_padding.size() == spatial();
    if (spatial() < 1 || spatial() > 3 || !lists || groups < 1 ||
        input.dim() != dims || weight.dim() != dims ||
        input.scalar_type() != weight.scalar_type()) {
      return false;
    }
    const std::int64_t wanted =
        transposed ? weight.size(0) : weight.size(1) * groups;
    return input.numel() != 0 && input.size(1) == wanted &&
           weight.size(0) % groups == 0 &&
           (is_float(input) || input.scalar_type() == at::kLong ||
            input.is_complex());
  }
  // The output's sizes; nothing when one would be empty.
  std::optional<c10::DimVector> output_sizes(
      const at::Tensor& input, const at::Tensor& weight) const {
    c10::DimVector sizes = {
        input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
    for (std::size_t d = 0; d < spatial(); ++d) {
      const auto at = static_cast<std::int64_t>(d) + 2;
      const std::int64_t reach = dilation[d] * (weight.size(at) - 1);
      const std::int64_t in = input.size(at);
      const bool valid = stride[d] > 0 && padding[d] >= 0 && dilation[d] > 0 &&
                         output_padding[d] >= 0;
      const std::int64_t size =
          !valid ? 0
          : transposed
              ? (in - 1) * stride[d] - 2 * padding[d] + reach +
                    output_padding[d] + 1
              : (in + 2 * padding[d] - reach - 1 + stride[d]) / stride[d];
      if (size < 1 || in + 2 * padding[d] <= reach) {
        return std::nullopt;
      }
      sizes.push_back(size);
    }
    return sizes;
  }
};

// As CPU's kernels lay out what they make: channels last when input or weight
// are; gradients in float64 never.
c10::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  const auto format = input.dim() == 5 ? at::MemoryFormat::ChannelsLast3d
                                       : at::MemoryFormat::ChannelsLast;
  const bool last = input.suggest_memory_format() == format ||
                    weight.suggest_memory_format() == format;
  return last && input.dim() >= 4 ? format : at::MemoryFormat::Contiguous;
}

at::Tensor made(
    const at::Tensor& like, at::IntArrayRef sizes, c10::MemoryFormat format) {
  return make_empty(sizes, like.scalar_type(), like.device().index(), format);
}

// The kind's result, or undefined where another rung is to do it.
at::Tensor native_convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const Geometry& geometry) {
  static NativeSite site(kForward, NPU_KIND_CONV, 0);
  npu_reason why = site.wants(input, weight, bias);
  if (!takes(geometry.fits(input, weight), why)) {
    return {};
  }
  const auto sizes = geometry.output_sizes(input, weight);
  if (!sizes ||
      (bias.defined() && (bias.dim() != 1 || bias.size(0) != (*sizes)[1] ||
                          bias.scalar_type() != input.scalar_type()))) {
    return {};
  }
  at::Tensor out = made(input, *sizes, format_of(input, weight));
  auto attrs = geometry.attrs<npu_conv_attrs>();
  return run<build::conv>(site, out, input, weight, bias, attrs) ==
                 NPU_REASON_NONE
             ? out
             : at::Tensor();
}

// Gradients the driver computed; undefined where it declined.
Grads native_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    const Geometry& geometry,
    std::array<bool, 3> mask) {
  static NativeSite input_site(kBackward, NPU_KIND_CONV_GRAD_INPUT, 0);
  static NativeSite weight_site(kBackward, NPU_KIND_CONV_GRAD_WEIGHT, 0);
  npu_reason why = input_site.wants(input, weight, grad);
  const bool plain = geometry.fits(input, weight) &&
                     grad.dim() == input.dim() && grad.numel() != 0 &&
                     grad.scalar_type() == input.scalar_type();
  if (!takes(plain, why) ||
      weight_site.wants(input, weight, grad) != NPU_REASON_NONE) {
    return {};
  }
  const c10::MemoryFormat format = input.scalar_type() == at::kDouble
                                       ? at::MemoryFormat::Contiguous
                                       : format_of(input, weight);
  Grads out;
  if (mask[0]) {
    at::Tensor made_input = made(input, input.sizes(), format);
    auto attrs = geometry.attrs<npu_conv_grad_input_attrs>();
    if (run<build::conv_grad_input>(
            input_site, made_input, grad, weight, attrs) != NPU_REASON_NONE) {
      return {};
    }
    std::get<0>(out) = std::move(made_input);
  }
  if (mask[1] || mask[2]) {
    at::Tensor made_weight = made(weight, weight.sizes(), format);
    at::Tensor bias =
        mask[2] ? made(weight, {grad.size(1)}, at::MemoryFormat::Contiguous)
                : at::Tensor();
    auto attrs = geometry.attrs<npu_conv_grad_weight_attrs>();
    if (run<build::conv_grad_weight>(
            weight_site, made_weight, bias, grad, input, attrs) !=
        NPU_REASON_NONE) {
      return {};
    }
    std::get<1>(out) = mask[1] ? std::move(made_weight) : at::Tensor();
    std::get<2>(out) = std::move(bias);
  }
  return out;
}

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
  const at::Tensor& b = or_undefined(bias);
  check_same_device(kForward, {&input, &weight, &b});
  const Geometry geometry{
      stride, padding, dilation, output_padding, groups, transposed};
  if (at::Tensor out = native_convolution(input, weight, b, geometry);
      out.defined()) {
    return out;
  }
  static const ladder::TwinOp op("aten::convolution", "", kForward);
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
  const Geometry geometry{
      stride, padding, dilation, output_padding, groups, transposed};
  Grads grads = native_backward(grad, input, weight, geometry, mask);
  if (std::get<0>(grads).defined() || std::get<1>(grads).defined() ||
      std::get<2>(grads).defined()) {
    return grads;
  }
  // The overrideable form leaves out the bias's size: one per output channel.
  const std::array<std::int64_t, 1> bias_sizes = {grad.size(1)};
  c10::List<bool> wanted({mask[0], mask[1], mask[2]});
  static const ladder::TwinOp op("aten::convolution_backward", "", kBackward);
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

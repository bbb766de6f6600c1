// SPDX-License-Identifier: Apache-2.0
// The functions of pack.yaml. The five of add have the API guide's signatures.
#include <ATen/core/Tensor.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/custom_function.h>

#include "torch_npu/csrc/aten/NPUNativeFunctions.h"

namespace at_npu {
namespace native {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// a + alpha * b by way of sub, so that it does not call itself.
at::Tensor plus(
    const at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
  return at::sub(a, b, -alpha);
}

// The gradient passes straight through, unlike PyTorch's: the test sees whose
// it is.
struct Relu6 : torch::autograd::Function<Relu6> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& self) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return at::clamp(self, 0, 6);
  }

  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0]};
  }
};

struct Convolution : torch::autograd::Function<Convolution> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& input,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      at::IntArrayRef dilation,
      int64_t groups) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({input, weight});
    ctx->saved_data["bias"] = bias.has_value() && bias->defined();
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    ctx->saved_data["dilation"] = dilation;
    ctx->saved_data["groups"] = groups;
    return at::conv2d(input, weight, bias, stride, padding, dilation, groups);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto stride = ctx->saved_data["stride"].toIntVector();
    auto padding = ctx->saved_data["padding"].toIntVector();
    auto dilation = ctx->saved_data["dilation"].toIntVector();
    bool bias = ctx->saved_data["bias"].toBool();
    std::vector<int64_t> bias_sizes{saved[1].size(0)};
    auto [input, weight, bias_grad] = at::convolution_backward(
        grads[0],
        saved[0],
        saved[1],
        bias_sizes,
        stride,
        padding,
        dilation,
        false,
        {0, 0},
        ctx->saved_data["groups"].toInt(),
        {true, true, bias});
    at::Tensor none;
    return {input, weight, bias ? bias_grad : none, none, none, none, none};
  }
};

}  // namespace

at::Tensor NPUNativeFunctions::add(
    const at::Tensor& self, const at::Tensor& other, at::Scalar alpha) {
  return plus(self, other, alpha);
}

at::Tensor NPUNativeFunctions::add(
    const at::Tensor& self, at::Scalar other, at::Scalar alpha) {
  return at::sub(self, other, -alpha);
}

at::Tensor& NPUNativeFunctions::add_(
    at::Tensor& self, const at::Tensor& other, at::Scalar alpha) {
  return self.copy_(plus(self, other, alpha));
}

at::Tensor& NPUNativeFunctions::add_(
    at::Tensor& self, at::Scalar other, at::Scalar alpha) {
  return self.copy_(at::sub(self, other, -alpha));
}

at::Tensor& NPUNativeFunctions::add_out(
    const at::Tensor& self,
    const at::Tensor& other,
    at::Scalar alpha,
    at::Tensor& result) {
  at::Tensor sum = plus(self, other, alpha);
  return result.resize_(sum.sizes()).copy_(sum);
}

at::Tensor NPUNativeFunctions::relu6(const at::Tensor& self) {
  return Relu6::apply(self);
}

at::Tensor NPUNativeFunctions::npu_dtype_cast(
    const at::Tensor& self, at::ScalarType dtype) {
  return self.to(dtype);
}

at::Tensor& NPUNativeFunctions::npu_dtype_cast_(
    at::Tensor& self, const at::Tensor& src) {
  return self.copy_(src);
}

std::tuple<int64_t, at::Tensor> NPUNativeFunctions::npu_count(
    at::TensorList tensors,
    c10::string_view what,
    at::IntArrayRef dims,
    std::optional<double> scale) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    count += what == "elements" ? tensor.numel() : tensor.dim();
  }
  return {count, at::mul(tensors[0], scale.value_or(1.0))};
}

at::Tensor NPUNativeFunctions::npu_convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    int64_t groups) {
  return Convolution::apply(
      input, weight, bias, stride, padding, dilation, groups);
}

}  // namespace native
}  // namespace at_npu

// SPDX-License-Identifier: Apache-2.0
// npu_geglu, forward and backward: kinds of gelu and products, float32 inside.
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>

#include "aten/ops/fused/fused.h"

namespace npu::fused {
namespace {

constexpr char kGeglu[] = "npu::npu_geglu";
constexpr char kGegluGrad[] = "npu::npu_geglu_grad";
using GegluFn = Pair(const at::Tensor&, std::int64_t, std::int64_t, bool);
using GegluGradFn = at::Tensor(
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    std::int64_t,
    std::int64_t,
    bool);

// The half that gelu is taken of, and the other one.
struct Halves {
  at::Tensor active;
  at::Tensor plain;
};

bool fits(const at::Tensor& x, std::int64_t dim, std::int64_t approximate) {
  const std::int64_t at = dim < 0 ? dim + x.dim() : dim;
  return is_float(x) && on_device(x) && at >= 0 && at < x.dim() &&
         x.size(at) % 2 == 0 && (approximate == 0 || approximate == 1);
}

// float16 and bfloat16 in float32: results are rounded once.
at::Tensor wide(const at::Tensor& x) {
  return is_narrow(x) ? x.to(at::kFloat) : x;
}

Halves halves(const at::Tensor& x, std::int64_t dim, bool activate_left) {
  const std::int64_t half = x.size(dim) / 2;
  const at::Tensor left = wide(x.narrow(dim, 0, half));
  const at::Tensor right = wide(x.narrow(dim, half, half));
  return activate_left ? Halves{left, right} : Halves{right, left};
}

c10::string_view how(std::int64_t approximate) {
  return approximate == 1 ? "tanh" : "none";
}

Pair geglu(
    const at::Tensor& x,
    std::int64_t dim,
    std::int64_t approximate,
    bool activate_left) {
  if (!fits(x, dim, approximate)) {
    static const auto op = typed<GegluFn>(kGeglu);
    return op.redispatch(kComposition, x, dim, approximate, activate_left);
  }
  const auto [active, plain] = halves(x, dim, activate_left);
  const at::Tensor gelu = at::gelu(active, how(approximate));
  return {at::mul(plain, gelu).to(x.scalar_type()), gelu.to(x.scalar_type())};
}

at::Tensor geglu_grad(
    const at::Tensor& grad,
    const at::Tensor& x,
    const at::Tensor& gelu,
    std::int64_t dim,
    std::int64_t approximate,
    bool activate_left) {
  const auto fitting = [&](const at::Tensor& y) {
    c10::DimVector sizes(x.sizes());
    sizes[c10::maybe_wrap_dim(dim, x.dim())] /= 2;
    return is_float(y) && on_device(y) && y.sizes() == sizes;
  };
  if (!fits(x, dim, approximate) || !fitting(grad) || !fitting(gelu)) {
    static const auto op = typed<GegluGradFn>(kGegluGrad);
    return op.redispatch(
        kComposition, grad, x, gelu, dim, approximate, activate_left);
  }
  const auto [active, plain] = halves(x, dim, activate_left);
  const at::Tensor dy = wide(grad);
  const at::Tensor of_plain = at::mul(dy, wide(gelu));
  const at::Tensor of_active =
      at::gelu_backward(at::mul(dy, plain), active, how(approximate));
  return at::cat(
             activate_left ? at::TensorList{of_active, of_plain}
                           : at::TensorList{of_plain, of_active},
             dim)
      .to(x.scalar_type());
}

struct NpuGeglu : torch::autograd::Function<NpuGeglu> {
  static variable_list forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      std::int64_t dim,
      std::int64_t approximate,
      bool activate_left) {
    static const auto op = typed<GegluFn>(kGeglu);
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [y, gelu] = op.call(x, dim, approximate, activate_left);
    ctx->save_for_backward({x, gelu});
    ctx->saved_data["dim"] = dim;
    ctx->saved_data["approximate"] = approximate;
    ctx->saved_data["left"] = activate_left;
    // The documents give the second result no gradient.
    ctx->mark_non_differentiable({gelu});
    return {y, gelu};
  }
  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    static const auto op = typed<GegluGradFn>(kGegluGrad);
    const variable_list saved = ctx->get_saved_variables();
    return {
        op.call(
            grads[0],
            saved[0],
            saved[1],
            ctx->saved_data["dim"].toInt(),
            ctx->saved_data["approximate"].toInt(),
            ctx->saved_data["left"].toBool()),
        at::Tensor(),
        at::Tensor(),
        at::Tensor()};
  }
};

Pair geglu_autograd(
    const at::Tensor& x,
    std::int64_t dim,
    std::int64_t approximate,
    bool activate_left) {
  static const auto op = typed<GegluFn>(kGeglu);
  if (is_transformed(x)) {
    return op.redispatch(kComposition, x, dim, approximate, activate_left);
  }
  if (!needs_grad(x)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(x, dim, approximate, activate_left);
  }
  const variable_list outs =
      NpuGeglu::apply(x, dim, approximate, activate_left);
  return {outs[0], outs[1]};
}

const custom::Native kInstallGeglu(
    "npu_geglu", &install<&geglu, &geglu_autograd>);
const custom::Native kInstallGegluGrad("npu_geglu_grad", &install<&geglu_grad>);

}  // namespace
}  // namespace npu::fused

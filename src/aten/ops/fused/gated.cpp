// SPDX-License-Identifier: Apache-2.0
// npu_swiglu and npu_rotary_mul on their kinds, forward and backward.
#include <ATen/ops/cat.h>

#include <string_view>

#include "aten/ops/fused/fused.h"

namespace npu::fused {
namespace {

// ---- swiglu ----

constexpr char kSwiglu[] = "npu::npu_swiglu";
constexpr char kSwigluBackward[] = "npu::npu_swiglu_backward";
using SwigluFn = at::Tensor(const at::Tensor&, std::int64_t);
using SwigluBackwardFn =
    at::Tensor(const at::Tensor&, const at::Tensor&, std::int64_t);

// `dim` from the front; negative where there are no two halves along it.
std::int64_t halved_dim(const at::Tensor& x, std::int64_t dim) {
  const std::int64_t at = dim < 0 ? dim + x.dim() : dim;
  return at >= 0 && at < x.dim() && x.size(at) % 2 == 0 ? at : -1;
}

at::Tensor swiglu(const at::Tensor& input, std::int64_t dim) {
  static NativeSite site(kSwiglu, NPU_KIND_SWIGLU, 0);
  npu_reason why = site.wants(input);
  npu_swiglu_attrs attrs{};
  attrs.dim = halved_dim(input, dim);
  if (takes(is_narrow(input) && attrs.dim >= 0, why)) {
    c10::DimVector sizes(input.sizes());
    sizes[attrs.dim] /= 2;
    at::Tensor out = empty_of(input, sizes, input.scalar_type());
    if (run<build::swiglu>(site, out, input, attrs) == NPU_REASON_NONE) {
      return out;
    }
  }
  static const auto op = typed<SwigluFn>(kSwiglu);
  return op.redispatch(kComposition, input, dim);
}

at::Tensor swiglu_backward(
    const at::Tensor& grad, const at::Tensor& input, std::int64_t dim) {
  static NativeSite site(kSwigluBackward, NPU_KIND_SWIGLU_GRAD, 0);
  npu_reason why = site.wants(input, grad);
  npu_swiglu_grad_attrs attrs{};
  attrs.dim = halved_dim(input, dim);
  const auto fits = [&] {
    if (!is_narrow(input) || attrs.dim < 0 || !same_dtype(grad, input)) {
      return false;
    }
    c10::DimVector sizes(input.sizes());
    sizes[attrs.dim] /= 2;
    return grad.sizes() == sizes;
  };
  if (takes(fits(), why)) {
    at::Tensor out = empty_of(input, input.sizes(), input.scalar_type());
    if (run<build::swiglu_grad>(site, out, grad, input, attrs) ==
        NPU_REASON_NONE) {
      return out;
    }
  }
  static const auto op = typed<SwigluBackwardFn>(kSwigluBackward);
  return op.redispatch(kComposition, grad, input, dim);
}

struct NpuSwiglu : torch::autograd::Function<NpuSwiglu> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& input, std::int64_t dim) {
    static const auto op = typed<SwigluFn>(kSwiglu);
    ctx->save_for_backward({input});
    ctx->saved_data["dim"] = dim;
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(input, dim);
  }
  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    static const auto op = typed<SwigluBackwardFn>(kSwigluBackward);
    const variable_list saved = ctx->get_saved_variables();
    return {
        op.call(grads[0], saved[0], ctx->saved_data["dim"].toInt()),
        at::Tensor()};
  }
};

at::Tensor swiglu_autograd(const at::Tensor& input, std::int64_t dim) {
  static const auto op = typed<SwigluFn>(kSwiglu);
  if (is_transformed(input)) {
    return op.redispatch(kComposition, input, dim);
  }
  if (!needs_grad(input)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(input, dim);
  }
  return NpuSwiglu::apply(input, dim);
}

// ---- rotary ----

constexpr char kRotary[] = "npu::npu_rotary_mul";
constexpr char kRotaryBackward[] = "npu::npu_rotary_mul_backward";
using RotaryFn = at::Tensor(
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    c10::string_view,
    const std::optional<at::Tensor>&);
using RotaryBackwardFn = Triple(
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    c10::string_view);

constexpr std::uint32_t kNoCode = ~0u;
std::uint32_t code_of(std::string_view mode) {
  return mode == "half"         ? NPU_ROTARY_HALF
         : mode == "interleave" ? NPU_ROTARY_INTERLEAVE
         : mode == "quarter"    ? NPU_ROTARY_QUARTER
                                : kNoCode;
}

template <const char* kOverload, std::uint32_t kKind>
NativeSite& rotary_site(std::uint32_t code) {
  static NativeSite sites[] = {
      {kOverload, kKind, NPU_ROTARY_HALF},
      {kOverload, kKind, NPU_ROTARY_INTERLEAVE},
      {kOverload, kKind, NPU_ROTARY_QUARTER}};
  return sites[code];
}

// cos and sin are alike, and broadcast to x.
bool fits_rotary(
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin,
    std::uint32_t code) {
  if (code == kNoCode || !is_narrow(x) || !is_narrow(cos) || !is_narrow(sin) ||
      cos.sizes() != sin.sizes() || cos.dim() > x.dim() || cos.dim() == 0 ||
      cos.size(-1) != x.size(-1) ||
      x.size(-1) % (code == NPU_ROTARY_QUARTER ? 4 : 2) != 0) {
    return false;
  }
  for (std::int64_t d = 1; d <= cos.dim(); ++d) {
    if (cos.size(-d) != 1 && cos.size(-d) != x.size(-d)) {
      return false;
    }
  }
  return true;
}

// The documents cast cos and sin to x's dtype first.
at::Tensor like_input(const at::Tensor& angle, const at::Tensor& x) {
  return angle.scalar_type() == x.scalar_type() ? angle
                                                : angle.to(x.scalar_type());
}

at::Tensor rotary(
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin,
    c10::string_view mode,
    const std::optional<at::Tensor>& rotate) {
  const std::uint32_t code =
      rotate.has_value() ? kNoCode : code_of({mode.data(), mode.size()});
  if (fits_rotary(x, cos, sin, code)) {
    NativeSite& site = rotary_site<kRotary, NPU_KIND_ROTARY>(code);
    if (site.wants(x, cos, sin) == NPU_REASON_NONE) {
      at::Tensor out = empty_of(x, x.sizes(), x.scalar_type());
      if (run<build::rotary>(
              site, out, x, like_input(cos, x), like_input(sin, x)) ==
          NPU_REASON_NONE) {
        return out;
      }
    }
  }
  static const auto op = typed<RotaryFn>(kRotary);
  return op.redispatch(kComposition, x, cos, sin, mode, rotate);
}

Triple rotary_backward(
    const at::Tensor& grad,
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin,
    c10::string_view mode) {
  const std::uint32_t code = code_of({mode.data(), mode.size()});
  if (fits_rotary(x, cos, sin, code) && same_dtype(grad, x) &&
      grad.sizes() == x.sizes()) {
    NativeSite& site = rotary_site<kRotaryBackward, NPU_KIND_ROTARY_GRAD>(code);
    if (site.wants(grad, x, cos, sin) == NPU_REASON_NONE) {
      at::Tensor dx = empty_of(x, x.sizes(), x.scalar_type());
      at::Tensor dcos = empty_of(cos, cos.sizes(), cos.scalar_type());
      at::Tensor dsin = empty_of(sin, sin.sizes(), sin.scalar_type());
      if (run<build::rotary_grad>(
              site,
              dx,
              dcos,
              dsin,
              grad,
              x,
              like_input(cos, x),
              like_input(sin, x)) == NPU_REASON_NONE) {
        return {std::move(dx), std::move(dcos), std::move(dsin)};
      }
    }
  }
  static const auto op = typed<RotaryBackwardFn>(kRotaryBackward);
  return op.redispatch(kComposition, grad, x, cos, sin, mode);
}

// Sines with which a turn by `sin` is undone: those of the partner, negated.
at::Tensor sines_back(const at::Tensor& sin, std::uint32_t code) {
  const std::int64_t n = sin.size(-1);
  if (code == NPU_ROTARY_INTERLEAVE) {
    return sin.unflatten(-1, {n / 2, 2}).flip({-1}).flatten(-2).neg();
  }
  const std::int64_t segment = code == NPU_ROTARY_QUARTER ? n / 2 : n;
  std::vector<at::Tensor> parts;
  for (std::int64_t s = 0; s < n; s += segment) {
    parts.push_back(sin.narrow(-1, s + segment / 2, segment / 2));
    parts.push_back(sin.narrow(-1, s, segment / 2));
  }
  return at::cat(parts, -1).neg();
}

struct NpuRotaryMul : torch::autograd::Function<NpuRotaryMul> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& cos,
      const at::Tensor& sin,
      const std::string& mode) {
    static const auto op = typed<RotaryFn>(kRotary);
    const bool angles = cos.requires_grad() || sin.requires_grad();
    ctx->save_for_backward({angles ? x : at::Tensor(), cos, sin});
    ctx->saved_data["mode"] = mode;
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(x, cos, sin, mode, std::nullopt);
  }
  // Without gradients of the angles it is the turn back, which needs no x.
  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::string mode = ctx->saved_data["mode"].toStringRef();
    if (!saved[0].defined()) {
      static const auto op = typed<RotaryFn>(kRotary);
      const at::Tensor back = sines_back(saved[2], code_of(mode));
      return {
          op.call(grads[0], saved[1], back, mode, std::nullopt),
          at::Tensor(),
          at::Tensor(),
          at::Tensor()};
    }
    static const auto op = typed<RotaryBackwardFn>(kRotaryBackward);
    auto [dx, dcos, dsin] =
        op.call(grads[0], saved[0], saved[1], saved[2], mode);
    return {dx, dcos, dsin, at::Tensor()};
  }
};

at::Tensor rotary_autograd(
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin,
    c10::string_view mode,
    const std::optional<at::Tensor>& rotate) {
  static const auto op = typed<RotaryFn>(kRotary);
  const bool wanted = needs_grad(x, cos, sin);
  if (is_transformed(x, cos, sin) ||
      (wanted && (rotate.has_value() ||
                  code_of({mode.data(), mode.size()}) == kNoCode))) {
    return op.redispatch(kComposition, x, cos, sin, mode, rotate);
  }
  if (!wanted) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(x, cos, sin, mode, rotate);
  }
  return NpuRotaryMul::apply(x, cos, sin, std::string(mode));
}

const custom::Native kInstallSwiglu(
    "npu_swiglu", &install<&swiglu, &swiglu_autograd>);
const custom::Native kInstallSwigluBackward(
    "npu_swiglu_backward", &install<&swiglu_backward>);
const custom::Native kInstallRotary(
    "npu_rotary_mul", &install<&rotary, &rotary_autograd>);
const custom::Native kInstallRotaryBackward(
    "npu_rotary_mul_backward", &install<&rotary_backward>);

}  // namespace
}  // namespace npu::fused

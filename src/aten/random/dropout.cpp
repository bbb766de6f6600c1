// SPDX-License-Identifier: Apache-2.0
// native_dropout and rrelu: random masks and slopes.
#include <ATen/ops/dropout_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <tuple>

#include "aten/core/copy.h"
#include "aten/core/factories.h"
#include "aten/core/frame.h"
#include "aten/random/seeded.h"
#include "npu/kinds.h"

namespace npu {
namespace {

using OptGenerator = std::optional<at::Generator>;
using Pair = std::tuple<at::Tensor, at::Tensor>;

// Drops with chance p and scales what stays.
Pair drop(
    Site& site,
    const at::Tensor& input,
    double p,
    double scale,
    const OptGenerator& generator) {
  TORCH_CHECK(
      p >= 0 && p <= 1,
      "bernoulli_ expects p to be in [0, 1], but got p=",
      1 - p);
  TORCH_CHECK(
      !at::isIntegralType(input.scalar_type(), /*includeBool=*/true),
      "result type Float can't be cast to the desired output type ",
      input.scalar_type());
  at::Tensor mask = make_empty_like(input, at::kBool);
  if (input.is_complex()) {
    mask.bernoulli_(1 - p, generator);
    return {input.mul(mask).mul_(scale), mask};
  }
  at::Tensor out = make_empty_like(input, input.scalar_type());
  const at::Tensor tensors[] = {out, mask, laid_out_like(input, out)};
  npu_dropout_attrs attrs{.p = p, .scale = scale};
  run_seeded(
      {site,
       2,
       tensors,
       reserve_random(generator, input.device().index(), input.numel())},
      attrs);
  return {out, mask};
}

double keep_scale(double keep) {
  return keep == 0 ? 0 : 1 / keep;
}

Pair native_dropout(
    const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0) {
    return {input, at::empty_like(input)};
  }
  if (!train.value_or(true)) {
    return {
        input.clone(),
        at::ones_like(input, at::TensorOptions().dtype(at::kBool))};
  }
  static Site site("aten::native_dropout", NPU_KIND_DROPOUT, 0);
  return drop(site, input, p, keep_scale(1 - p), {});
}

// In place, with the mask that dropout draws. PyTorch's composite would draw
// another one for the same seed.
at::Tensor& dropout_(at::Tensor& self, double p, bool train) {
  if (p > 0 && p < 1 && train) {
    return self.copy_(std::get<0>(at::native_dropout(self, p, train)));
  }
  return at::compositeimplicitautograd::dropout_(self, p, train);
}

// Here p is the chance to be kept.
Pair fused_dropout(const at::Tensor& self, double p, OptGenerator generator) {
  if (self.numel() == 0) {
    return {
        self.clone(),
        at::empty_like(self, at::TensorOptions().dtype(at::kByte))};
  }
  static Site site("aten::_fused_dropout", NPU_KIND_DROPOUT, 0);
  auto [out, mask] = drop(site, self, 1 - p, keep_scale(p), generator);
  return {out, mask.to(at::kByte)};
}

at::Tensor rrelu(
    const at::Tensor& self,
    at::Tensor& noise,
    const c10::Scalar& lower,
    const c10::Scalar& upper,
    bool training,
    const OptGenerator& generator) {
  check_same_device("rrelu_with_noise", {&self, &noise});
  TORCH_CHECK(
      self.sym_sizes() == noise.sym_sizes(),
      "noise tensor shape must match self tensor shape. Got self.shape = ",
      self.sizes(),
      " noise.shape = ",
      noise.sizes());
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isFloatingType(self.scalar_type()),
      "\"rrelu_with_noise_out_npu\" not implemented for '",
      c10::toString(self.scalar_type()),
      "'");
  if (!training) {
    const double slope = (lower.toDouble() + upper.toDouble()) / 2;
    return at::leaky_relu(self, slope);
  }
  at::Tensor slopes = at::empty_like(self).uniform_(
      lower.toDouble(), upper.toDouble(), generator);
  // Positive inputs pass unchanged: their slope is 1.
  slopes = at::where(self.le(0), slopes, at::ones_like(slopes));
  copy(noise, slopes, false);
  return self.mul(slopes);
}

at::Tensor rrelu_with_noise(
    const at::Tensor& self,
    at::Tensor& noise,
    const c10::Scalar& lower,
    const c10::Scalar& upper,
    bool training,
    OptGenerator generator) {
  // The CPU's result is contiguous, whatever self is.
  return rrelu(self.contiguous(), noise, lower, upper, training, generator);
}

at::Tensor& rrelu_with_noise_out(
    const at::Tensor& self,
    at::Tensor& noise,
    const c10::Scalar& lower,
    const c10::Scalar& upper,
    bool training,
    OptGenerator generator,
    at::Tensor& out) {
  const at::Tensor result =
      rrelu(self, noise, lower, upper, training, generator);
  out.resize_(result.sizes());
  copy(out, result, false);
  return out;
}

at::Tensor& rrelu_with_noise_(
    at::Tensor& self,
    at::Tensor& noise,
    const c10::Scalar& lower,
    const c10::Scalar& upper,
    bool training,
    OptGenerator generator) {
  copy(self, rrelu(self, noise, lower, upper, training, generator), false);
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("dropout_", TORCH_FN(dropout_));
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("dropout_", TORCH_FN(dropout_));
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("_fused_dropout", TORCH_FN(fused_dropout));
  m.impl("rrelu_with_noise", TORCH_FN(rrelu_with_noise));
  m.impl("rrelu_with_noise.out", TORCH_FN(rrelu_with_noise_out));
  m.impl("rrelu_with_noise_", TORCH_FN(rrelu_with_noise_));
}

}  // namespace npu

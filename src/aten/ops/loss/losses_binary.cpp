// SPDX-License-Identifier: Apache-2.0
// Losses of two classes: binary cross entropy and soft margin.
#include <ATen/ExpandUtils.h>

#include "aten/ops/loss/losses.h"
#include "attempts/nn.h"

namespace npu::ops {

npu_reason bce(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction) {
  return run_loss(
      site, out, {self, target, self, reduction, 0, or_undefined(weight)});
}

npu_reason bce_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction) {
  const Loss loss{self, target, self, reduction, 0, or_undefined(weight)};
  return run_loss_grad(site, out, grad, loss);
}

// Weights are often one per class: they come as large as the input, expanded.
npu_reason bce_with_logits(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    const OptTensor& pos_weight,
    std::int64_t reduction) {
  const auto expanded = [&](const OptTensor& given) {
    const at::Tensor& tensor = or_undefined(given);
    return tensor.defined() &&
                   at::is_expandable_to(tensor.sizes(), self.sizes())
               ? tensor.expand(self.sizes())
               : tensor;
  };
  const Loss loss{
      self, target, self, reduction, 0, expanded(weight), expanded(pos_weight)};
  return run_loss(site, out, loss);
}

npu_reason soft_margin(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction) {
  return run_loss(site, out, {self, target, target, reduction});
}

npu_reason soft_margin_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction) {
  return run_loss_grad(site, out, grad, {self, target, target, reduction});
}

}  // namespace npu::ops

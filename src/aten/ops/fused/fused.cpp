// SPDX-License-Identifier: Apache-2.0
#include "aten/ops/fused/fused.h"

namespace npu::fused {
namespace {

bool wants_grad(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() &&
           (tensor.requires_grad() || is_transformed(tensor));
  }
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (wants_grad(tensor)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

void record_parts(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const auto arguments =
      torch::jit::last(*stack, op.schema().arguments().size());
  if (at::GradMode::is_enabled() &&
      std::any_of(arguments.begin(), arguments.end(), wants_grad)) {
    op.redispatchBoxed(kComposition, stack);
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

}  // namespace npu::fused

// SPDX-License-Identifier: Apache-2.0
#include "aten/ops/fused/fused.h"

#include "driver/registry.h"

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

bool is_on_cpu() {
  const Driver* const driver = active_driver_or_null();
  return driver != nullptr && driver->device_is_cpu();
}

}  // namespace npu::fused

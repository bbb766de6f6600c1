// SPDX-License-Identifier: Apache-2.0
// torch.autocast("npu"): PyTorch's own cast lists; all else falls through.
#include "aten/ops/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "runtime/device.h"

namespace npu {

bool autocast_enabled() {
  return at::autocast::is_autocast_enabled(kDeviceType);
}

namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

// Logarithms of half precision probabilities overflow: asked for the safe
// form, as on other devices.
at::Tensor refuse_binary_cross_entropy(
    const at::Tensor&,
    const at::Tensor&,
    const std::optional<at::Tensor>&,
    std::int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are "
      "unsafe to autocast. Use binary_cross_entropy_with_logits or "
      "torch.nn.BCEWithLogitsLoss, which take the values before the sigmoid "
      "and are safe; or compute the loss outside autocast in float32.");
}

}  // namespace
}  // namespace npu

namespace at {
namespace {

#define NPU_LOWER_PRECISION(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define NPU_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define NPU_FP32_SET_DTYPE(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define NPU_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(NPU_LOWER_PRECISION)
  AT_FORALL_FP32(NPU_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NPU_FP32_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
      KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(NPU_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(npu::refuse_binary_cross_entropy));
}

}  // namespace
}  // namespace at

// SPDX-License-Identifier: Apache-2.0
// where: an elementwise operator whose first operand is a mask.
#include <ATen/ops/result_type.h>

#include "aten/ops/map/map.h"
#include "attempts/map.h"
#include "npu/kinds.h"

namespace npu::ops {

npu_reason where(
    NativeSite& site,
    Outputs& outputs,
    const at::Tensor& condition,
    const at::Tensor& self,
    const at::Tensor& other) {
  const at::Tensor& out = outputs.at(0);
  const c10::ScalarType type = at::result_type(self, other);
  // A mask on the host, or one of bytes (PyTorch warns), is the CPU rung's, and
  // so is a result of another dtype, which is an error.
  if (condition.scalar_type() != c10::kBool ||
      (out.defined() && out.scalar_type() != type)) {
    return NPU_REASON_DTYPE;
  }
  if (condition.device().is_cpu() ||
      (out.defined() && out.device() != condition.device())) {
    return kLeaveToCpu;
  }
  // The values decide what a driver prefers, not the mask.
  const npu_reason why = self.device().is_cpu()
                             ? site.wants(other, self, condition)
                             : site.wants(self, other, condition);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .allow_cpu_scalars(true)
      .add_output(out)
      .add_const_input(condition)
      .add_const_input(self)
      .add_const_input(other);
  if (!out.defined()) {
    config.declare_static_dtype(type);
  }
  npu_ternary_attrs attrs{};
  return run_map(
      site,
      outputs,
      config.build(),
      {&condition, &self, &other},
      as_attrs(attrs));
}

}  // namespace npu::ops

// SPDX-License-Identifier: Apache-2.0
// masked_fill_: where(mask, value, self), written to self.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>

#include "aten/core/geometry.h"
#include "aten/ops/op.h"
#include "attempts/map.h"
#include "driver/build_call.h"

namespace npu::ops {

npu_reason masked_fill(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& mask,
    const c10::Scalar& value) {
  if (const npu_reason why = first_failed(
          {{mask.scalar_type() == at::kBool, NPU_REASON_DTYPE},
           {mask.numel() != 0 && self.numel() != 0, NPU_REASON_SIZE},
           {!self.is_alias_of(mask) &&
                at::has_internal_overlap(self) != at::MemOverlap::Yes,
            NPU_REASON_ALIAS},
           {on_device(mask) && (!value.isComplex() || self.is_complex()) &&
                at::is_expandable_to(mask.sizes(), self.sizes()),
            kLeaveToCpu}})) {
    return why;
  }
  const at::Tensor wide = mask.expand(self.sizes());
  const at::TensorIterator iter = at::TensorIteratorConfig()
                                      .set_check_mem_overlap(false)
                                      .check_all_same_dtype(false)
                                      .resize_outputs(false)
                                      .add_output(out.at(0))
                                      .add_const_input(wide)
                                      .build();
  const Geometry<2> geometry(iter);
  npu_tensor result = to_operand(out.at(0));
  geometry.apply(result, 0);
  npu_tensor kept = result;
  kept.flags |= NPU_TENSOR_ALIAS;
  npu_tensor where = to_operand(wide);
  geometry.apply(where, 1);
  const NumberOperand number(value, self);
  npu_ternary_attrs attrs{};
  Call call = site.call();
  call.frame().compute_dtype = result.dtype;
  build::ternary(call, result, nullptr, where, &number.operand(), &kept, attrs);
  return site.run(call, self.device().index());
}

npu_reason masked_fill_by(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& mask,
    const at::Tensor& value) {
  return value.dim() == 0 ? masked_fill(site, out, self, mask, value.item())
                          : kLeaveToCpu;
}

}  // namespace npu::ops

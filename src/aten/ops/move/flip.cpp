// SPDX-License-Identifier: Apache-2.0
// flip: the worked example of an adapter written by hand (native.h).
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/flip_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "aten/core/frame.h"
#include "aten/ladder/native.h"
#include "driver/build_call.h"

namespace npu {
namespace {

at::Tensor flip(const at::Tensor& self, at::IntArrayRef dims) {
  static NativeSite site("aten::flip", NPU_KIND_FLIP, 0);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    npu_flip_attrs attrs{};
    // Checks the dimensions with CPU's own errors.
    attrs.dims = at::dim_list_to_bitset(dims, self.dim()).to_ullong();
    at::Tensor out = make_empty_like(self, self.scalar_type());
    Call call = site.call();
    build::flip(call, to_operand(out), to_operand(self), attrs);
    why = site.run(call, self.device().index());
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::flip, self, dims);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("flip", TORCH_FN(flip));
}

}  // namespace npu

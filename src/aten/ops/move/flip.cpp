// SPDX-License-Identifier: Apache-2.0
// flip: the worked example of an attempt (docs/adding-an-operator.md).
#include <ATen/WrapDimUtilsMulti.h>

#include "aten/ops/op.h"
#include "attempts/move.h"
#include "driver/build_call.h"

namespace npu::ops {

npu_reason flip(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    at::IntArrayRef dims) {
  npu_flip_attrs attrs{};
  // Checks the dimensions with CPU's own errors.
  attrs.dims = at::dim_list_to_bitset(dims, self.dim()).to_ullong();
  out.set_like(0, self, self.scalar_type());
  return run<build::flip>(site, out.at(0), self, attrs);
}

}  // namespace npu::ops

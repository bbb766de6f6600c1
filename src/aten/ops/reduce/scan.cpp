// SPDX-License-Identifier: Apache-2.0
// Kind scan: cumsum and cumprod, running extremes, logcumsumexp.
#include "aten/ops/op.h"
#include "aten/ops/rows.h"
#include "attempts/reduce.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

npu_reason run_scan(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& out,
    const at::Tensor& indices) {
  const npu_tensor in = input_operand(self, out);
  const bool in_place = (in.flags & NPU_TENSOR_ALIAS) != 0;
  if ((!in_place && overlaps(out, self)) || overlaps(indices, self)) {
    return NPU_REASON_ALIAS;
  }
  npu_scan_attrs attrs{
      .dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim())};
  return run<build::scan>(site, out, indices, in, attrs);
}

}  // namespace

npu_reason scan_out(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& out) {
  return run_scan(site, self, dim, out, {});
}

npu_reason logcumsumexp(
    NativeSite& site, Outputs& out, const at::Tensor& self, std::int64_t dim) {
  const at::Tensor& given = out.at(0);
  if (given.defined() && !fits(given, self, self.sizes(), self.scalar_type())) {
    return kLeaveToCpu;
  }
  set_output(out, 0, self.sizes(), self);
  return run_scan(site, self, dim, out.at(0), {});
}

// Running extremes, and where they were: both outputs are given and ready.
npu_reason scan_with_indices(
    NativeSite& site,
    Outputs&,
    const at::Tensor& self,
    const at::Tensor& values,
    const at::Tensor& indices,
    std::int64_t dim) {
  return run_scan(site, self, dim, values, indices);
}

}  // namespace npu::ops

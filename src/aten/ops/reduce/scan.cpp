// SPDX-License-Identifier: Apache-2.0
// Kind scan: cumsum and cumprod, running extremes, logcumsumexp.
#include <ATen/ops/_cummax_helper_cpu_dispatch.h>
#include <ATen/ops/_cummin_helper_cpu_dispatch.h>
#include <torch/library.h>

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
  npu_scan_attrs attrs{};
  attrs.dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim());
  Call call = site.call();
  build::scan(call, to_operand(out), MaybeOperand(indices), in, attrs);
  return run(site, call, self);
}

}  // namespace

npu_reason scan_out(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    std::optional<at::ScalarType>,
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

// ---- running extremes ----

namespace {

using Helper = void(const at::Tensor&, at::Tensor&, at::Tensor&, std::int64_t);

// Values and indices are ready, of self's sizes.
void run_helper(
    NativeSite& site,
    Helper* cpu,
    const at::Tensor& self,
    at::Tensor& values,
    at::Tensor& indices,
    std::int64_t dim) {
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    why = run_scan(site, self, dim, values, indices);
  }
  if (why != NPU_REASON_NONE) {
    site.cpu(why, cpu, self, values, indices, dim);
  }
}

void cummax_helper(
    const at::Tensor& self,
    at::Tensor& values,
    at::Tensor& indices,
    std::int64_t dim) {
  static NativeSite site(
      "aten::_cummax_helper", NPU_KIND_SCAN, NPU_SCAN_CUMMAX);
  run_helper(site, &at::cpu::_cummax_helper, self, values, indices, dim);
}

void cummin_helper(
    const at::Tensor& self,
    at::Tensor& values,
    at::Tensor& indices,
    std::int64_t dim) {
  static NativeSite site(
      "aten::_cummin_helper", NPU_KIND_SCAN, NPU_SCAN_CUMMIN);
  run_helper(site, &at::cpu::_cummin_helper, self, values, indices, dim);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_cummax_helper", TORCH_FN(cummax_helper));
  m.impl("_cummin_helper", TORCH_FN(cummin_helper));
}

}  // namespace npu::ops

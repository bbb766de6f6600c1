// SPDX-License-Identifier: Apache-2.0
// Kind scan: cumsum and cumprod (structured), running extremes, logcumsumexp.
#include "aten/ops/rows.h"

#include <ATen/ops/_cummax_helper_cpu_dispatch.h>
#include <ATen/ops/_cummin_helper_cpu_dispatch.h>
#include <ATen/ops/_logcumsumexp_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "driver/build_call.h"
#include "impls.h"

namespace npu {
namespace {

npu_reason run_scan(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& out,
    const at::Tensor& indices) {
  const bool in_place = out.is_same(self);
  if ((!in_place && overlaps(out, self)) || overlaps(indices, self)) {
    return NPU_REASON_ALIAS;
  }
  npu_scan_attrs attrs{};
  attrs.dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim());
  npu_tensor in = to_operand(self);
  if (in_place) {
    in.flags |= NPU_TENSOR_ALIAS;
    in.alias_of = 0;
  }
  const OptionalOperand index_operand(indices);
  Call call = site.call();
  build::scan(call, to_operand(out), index_operand.get(), in, attrs);
  return site.run(call, self.device().index());
}

// Values and indices are ready, of self's sizes.
void cummax_helper(
    const at::Tensor& self,
    at::Tensor& values,
    at::Tensor& indices,
    std::int64_t dim) {
  static NativeSite site(
      "aten::_cummax_helper", NPU_KIND_SCAN, NPU_SCAN_CUMMAX);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    why = run_scan(site, self, dim, values, indices);
  }
  if (why != NPU_REASON_NONE) {
    site.cpu(why, &at::cpu::_cummax_helper, self, values, indices, dim);
  }
}

void cummin_helper(
    const at::Tensor& self,
    at::Tensor& values,
    at::Tensor& indices,
    std::int64_t dim) {
  static NativeSite site(
      "aten::_cummin_helper", NPU_KIND_SCAN, NPU_SCAN_CUMMIN);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    why = run_scan(site, self, dim, values, indices);
  }
  if (why != NPU_REASON_NONE) {
    site.cpu(why, &at::cpu::_cummin_helper, self, values, indices, dim);
  }
}

bool is_field(const at::Tensor& self) {
  return self.is_floating_point() || self.is_complex();
}

at::Tensor logcumsumexp(const at::Tensor& self, std::int64_t dim) {
  static NativeSite site(
      "aten::_logcumsumexp", NPU_KIND_SCAN, NPU_SCAN_LOGCUMSUMEXP);
  npu_reason why = is_field(self) ? site.wants(self) : NPU_REASON_DTYPE;
  if (why == NPU_REASON_NONE) {
    at::Tensor out =
        make_empty(self.sizes(), self.scalar_type(), self.device().index());
    why = run_scan(site, self, dim, out, {});
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::_logcumsumexp, self, dim);
}

at::Tensor& logcumsumexp_out(
    const at::Tensor& self, std::int64_t dim, at::Tensor& out) {
  static NativeSite site(
      "aten::_logcumsumexp.out", NPU_KIND_SCAN, NPU_SCAN_LOGCUMSUMEXP);
  const bool ready =
      is_field(self) && fits(out, self, self.sizes(), self.scalar_type());
  npu_reason why = ready ? site.wants(self) : NPU_REASON_DTYPE;
  if (why == NPU_REASON_NONE) {
    why = run_scan(site, self, dim, out, {});
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  using Cpu = at::Tensor&(const at::Tensor&, std::int64_t, at::Tensor&);
  return site.cpu(
      why, static_cast<Cpu*>(&at::cpu::_logcumsumexp_outf), self, dim, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_cummax_helper", TORCH_FN(cummax_helper));
  m.impl("_cummin_helper", TORCH_FN(cummin_helper));
  m.impl("_logcumsumexp", TORCH_FN(logcumsumexp));
  m.impl("_logcumsumexp.out", TORCH_FN(logcumsumexp_out));
}

}  // namespace npu

namespace at_npu::native {

npu_reason scan_out(
    npu::NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    std::optional<at::ScalarType>,
    const at::Tensor& out) {
  return npu::run_scan(site, self, dim, out, {});
}

}  // namespace at_npu::native

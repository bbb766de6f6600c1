// SPDX-License-Identifier: Apache-2.0
// Kind arg_reduce, operators without a structured meta: median, nanmedian, mode
// and kthvalue.
#include "aten/ops/op.h"
#include "aten/ops/rows.h"
#include "attempts/order.h"

namespace npu::ops {

namespace {

npu_reason run_rank(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    std::int64_t k) {
  const std::int64_t at = at::maybe_wrap_dim(dim, self.dim());
  const at::DimVector sizes = reduced_sizes(self, dim_mask(at, self), keepdim);
  const auto is_free = [&](int i, c10::ScalarType dtype) {
    const at::Tensor& given = out.at(i);
    return !given.defined() || fits(given, self, sizes, dtype);
  };
  if (!is_free(0, self.scalar_type()) || !is_free(1, at::kLong)) {
    return kLeaveToCpu;
  }
  set_output(out, 0, sizes, self);
  set_output(out, 1, sizes, self.options().dtype(at::kLong));
  return run_arg_reduce(site, self, at, keepdim, out.at(0), out.at(1), k);
}

}  // namespace

npu_reason rank_whole(NativeSite& site, Outputs& out, const at::Tensor& self) {
  set_output(out, 0, {}, self);
  return run_arg_reduce(site, self, -1, false, out.at(0), {});
}

npu_reason rank_dim(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim) {
  return run_rank(site, out, self, dim, keepdim, 0);
}

npu_reason kthvalue(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t k,
    std::int64_t dim,
    bool keepdim) {
  const std::int64_t at = at::maybe_wrap_dim(dim, self.dim());
  const std::int64_t n = self.dim() == 0 ? 1 : self.size(at);
  return k >= 1 && k <= n ? run_rank(site, out, self, dim, keepdim, k)
                          : npu_reason{NPU_REASON_ATTRIBUTE};
}

}  // namespace npu::ops

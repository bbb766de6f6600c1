// SPDX-License-Identifier: Apache-2.0
// Kind arg_reduce, operators without a structured meta: median, nanmedian, mode
// and kthvalue.
#include "aten/ops/rows.h"

#include <ATen/ops/kthvalue_cpu_dispatch.h>
#include <ATen/ops/median_cpu_dispatch.h>
#include <ATen/ops/mode_cpu_dispatch.h>
#include <ATen/ops/nanmedian_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/core/factories.h"

namespace npu {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using PairRef = std::tuple<at::Tensor&, at::Tensor&>;

at::Tensor whole(
    NativeSite& site,
    at::Tensor (*cpu)(const at::Tensor&),
    const at::Tensor& self) {
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    at::Tensor out = make_empty({}, self.scalar_type(), self.device().index());
    why = run_arg_reduce(site, self, -1, false, out, {});
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, cpu, self);
}

at::Tensor median(const at::Tensor& self) {
  static NativeSite site(
      "aten::median", NPU_KIND_ARG_REDUCE, NPU_ARG_REDUCE_MEDIAN);
  return whole(
      site,
      static_cast<at::Tensor (*)(const at::Tensor&)>(&at::cpu::median),
      self);
}
at::Tensor nanmedian(const at::Tensor& self) {
  static NativeSite site(
      "aten::nanmedian", NPU_KIND_ARG_REDUCE, NPU_ARG_REDUCE_NANMEDIAN);
  return whole(
      site,
      static_cast<at::Tensor (*)(const at::Tensor&)>(&at::cpu::nanmedian),
      self);
}

// Runs into outputs that are as they must be.
npu_reason run_into(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    const at::Tensor& values,
    const at::Tensor& indices,
    std::int64_t k = 0) {
  const std::int64_t at = at::maybe_wrap_dim(dim, self.dim());
  const at::DimVector sizes =
      reduced_sizes(self, std::uint64_t{1} << at, keepdim);
  if (!fits(values, self, sizes, self.scalar_type()) ||
      !fits(indices, self, sizes, c10::ScalarType::Long)) {
    return NPU_REASON_SIZE;
  }
  return run_arg_reduce(site, self, at, keepdim, values, indices, k);
}

using DimOut =
    PairRef(const at::Tensor&, std::int64_t, bool, at::Tensor&, at::Tensor&);

PairRef along(
    NativeSite& site,
    DimOut* cpu,
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    at::Tensor& values,
    at::Tensor& indices) {
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    why = run_into(site, self, dim, keepdim, values, indices);
    if (why == NPU_REASON_NONE) {
      return {values, indices};
    }
  }
  return site.cpu(why, cpu, self, dim, keepdim, values, indices);
}

PairRef median_out(
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    at::Tensor& values,
    at::Tensor& indices) {
  static NativeSite site(
      "aten::median.dim_values", NPU_KIND_ARG_REDUCE, NPU_ARG_REDUCE_MEDIAN);
  return along(
      site,
      static_cast<DimOut*>(&at::cpu::median_outf),
      self,
      dim,
      keepdim,
      values,
      indices);
}
PairRef nanmedian_out(
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    at::Tensor& values,
    at::Tensor& indices) {
  static NativeSite site(
      "aten::nanmedian.dim_values",
      NPU_KIND_ARG_REDUCE,
      NPU_ARG_REDUCE_NANMEDIAN);
  return along(
      site,
      static_cast<DimOut*>(&at::cpu::nanmedian_outf),
      self,
      dim,
      keepdim,
      values,
      indices);
}

at::Tensor make_rank(
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    c10::ScalarType dtype) {
  return make_empty(
      reduced_sizes(self, dim_mask(dim, self), keepdim),
      dtype,
      self.device().index());
}

Pair median_dim(const at::Tensor& self, std::int64_t dim, bool keepdim) {
  static NativeSite site(
      "aten::median.dim", NPU_KIND_ARG_REDUCE, NPU_ARG_REDUCE_MEDIAN);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    at::Tensor values = make_rank(self, dim, keepdim, self.scalar_type());
    at::Tensor indices = make_rank(self, dim, keepdim, at::kLong);
    why = run_into(site, self, dim, keepdim, values, indices);
    if (why == NPU_REASON_NONE) {
      return {std::move(values), std::move(indices)};
    }
  }
  return site.cpu_boxed<Pair>(why, self, dim, keepdim);
}

Pair nanmedian_dim(const at::Tensor& self, std::int64_t dim, bool keepdim) {
  static NativeSite site(
      "aten::nanmedian.dim", NPU_KIND_ARG_REDUCE, NPU_ARG_REDUCE_NANMEDIAN);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    at::Tensor values = make_rank(self, dim, keepdim, self.scalar_type());
    at::Tensor indices = make_rank(self, dim, keepdim, at::kLong);
    why = run_into(site, self, dim, keepdim, values, indices);
    if (why == NPU_REASON_NONE) {
      return {std::move(values), std::move(indices)};
    }
  }
  return site.cpu_boxed<Pair>(why, self, dim, keepdim);
}

Pair mode(const at::Tensor& self, std::int64_t dim, bool keepdim) {
  static NativeSite site(
      "aten::mode", NPU_KIND_ARG_REDUCE, NPU_ARG_REDUCE_MODE);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    at::Tensor values = make_rank(self, dim, keepdim, self.scalar_type());
    at::Tensor indices = make_rank(self, dim, keepdim, at::kLong);
    why = run_into(site, self, dim, keepdim, values, indices);
    if (why == NPU_REASON_NONE) {
      return {std::move(values), std::move(indices)};
    }
  }
  return site.cpu(why, &at::cpu::mode, self, dim, keepdim);
}

PairRef kthvalue_out(
    const at::Tensor& self,
    std::int64_t k,
    std::int64_t dim,
    bool keepdim,
    at::Tensor& values,
    at::Tensor& indices) {
  static NativeSite site(
      "aten::kthvalue.values", NPU_KIND_ARG_REDUCE, NPU_ARG_REDUCE_KTHVALUE);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    const std::int64_t at = at::maybe_wrap_dim(dim, self.dim());
    const std::int64_t n = self.dim() == 0 ? 1 : self.size(at);
    why = k >= 1 && k <= n
              ? run_into(site, self, dim, keepdim, values, indices, k)
              : npu_reason{NPU_REASON_ATTRIBUTE};
    if (why == NPU_REASON_NONE) {
      return {values, indices};
    }
  }
  return site.cpu(
      why, &at::cpu::kthvalue_outf, self, k, dim, keepdim, values, indices);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("kthvalue.values", TORCH_FN(kthvalue_out));
  m.impl("median", TORCH_FN(median));
  m.impl("median.dim", TORCH_FN(median_dim));
  m.impl("median.dim_values", TORCH_FN(median_out));
  m.impl("mode", TORCH_FN(mode));
  m.impl("nanmedian", TORCH_FN(nanmedian));
  m.impl("nanmedian.dim", TORCH_FN(nanmedian_dim));
  m.impl("nanmedian.dim_values", TORCH_FN(nanmedian_out));
}

}  // namespace npu

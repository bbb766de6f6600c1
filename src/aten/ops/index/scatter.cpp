// SPDX-License-Identifier: Apache-2.0
// scatter and index_add, index_copy, index_fill, index_reduce: elements and
// slices written at indices.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>

#include "aten/ops/op.h"
#include "attempts/index.h"
#include "driver/build_call.h"

namespace npu::ops {

using c10::Scalar;

namespace {

npu_reason run_scatter(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const npu_tensor& src,
    const at::Tensor& out,
    bool include_self = true) {
  if (const npu_reason why = first_failed(
          {{is_index(index), NPU_REASON_DTYPE},
           {self.dim() == index.dim() && self.numel() != 0, kLeaveToCpu}})) {
    return why;
  }
  begin_with(out, self);
  if (index.numel() == 0) {
    return NPU_REASON_NONE;
  }
  npu_scatter_attrs attrs{
      .dim = at::maybe_wrap_dim(dim, self.dim()), .include_self = include_self};
  return run_checked<build::scatter>(site, out, index, src, attrs);
}

}  // namespace

// ---- scatter ----

npu_reason scatter_value(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const Scalar& value,
    const at::Tensor& out) {
  const NumberOperand number(value, self);
  return run_scatter(site, self, dim, index, number.operand(), out);
}

npu_reason scatter(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    bool include_self,
    const at::Tensor& out) {
  if (!same_dtype(src, self)) {
    return NPU_REASON_DTYPE;
  }
  return src.dim() == index.dim()
             ? run_scatter(
                   site, self, dim, index, to_operand(src), out, include_self)
             : kLeaveToCpu;
}

// ---- index_add, index_copy, index_reduce, index_fill ----

namespace {

npu_reason run_update(
    NativeSite& site,
    const at::Tensor& out,
    const at::Tensor& index,
    const npu_tensor& source,
    npu_index_update_attrs& attrs) {
  if (index.numel() == 0) {
    return NPU_REASON_NONE;
  }
  return run_checked<build::index_update>(site, out, index, source, attrs);
}

npu_reason run_update(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    npu_index_update_attrs& attrs,
    const at::Tensor& out) {
  if (!is_index(index) || !same_dtype(source, self)) {
    return NPU_REASON_DTYPE;
  }
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) {
    return NPU_REASON_ALIAS;
  }
  if (self.dim() == 0 || source.dim() != self.dim() || self.numel() == 0 ||
      index.dim() > 1) {
    return kLeaveToCpu;
  }
  attrs.dim = at::maybe_wrap_dim(dim, self.dim());
  begin_with(out, self);
  return run_update(site, out, index, to_operand(source), attrs);
}

}  // namespace

npu_reason index_add(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    const Scalar& alpha,
    const at::Tensor& out) {
  npu_index_update_attrs attrs{
      .include_self = 1, .alpha = to_npu_scalar(alpha)};
  return run_update(site, self, dim, index, source, attrs, out);
}

npu_reason index_update(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    bool include_self,
    const at::Tensor& out) {
  npu_index_update_attrs attrs{.include_self = include_self};
  return run_update(site, self, dim, index, source, attrs, out);
}

npu_reason index_fill(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const Scalar& value) {
  if (const npu_reason why = first_failed(
          {{at::has_internal_overlap(self) == at::MemOverlap::No,
            NPU_REASON_ALIAS},
           {!value.isComplex() || self.is_complex(), kLeaveToCpu}})) {
    return why;
  }
  npu_index_update_attrs attrs{.dim = at::maybe_wrap_dim(dim, self.dim())};
  const NumberOperand number(value, self);
  return run_update(site, out.at(0), index, number.operand(), attrs);
}

npu_reason index_fill_tensor(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& value) {
  return index_fill(site, out, self, dim, index, value.item());
}

}  // namespace npu::ops

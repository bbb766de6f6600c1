// SPDX-License-Identifier: Apache-2.0
// Kinds reduce and arg_reduce: structured groups (ops/aten/reduce.yaml).
#include "attempts/reduce.h"

#include "aten/ops/rows.h"
#include "driver/build_call.h"

namespace npu {

npu_reason run_reduce(
    NativeSite& site,
    const at::Tensor& self,
    const Reduction& reduction,
    const at::Tensor& out,
    const at::Tensor& out2) {
  if (overlaps(out, self) || overlaps(out2, self)) {
    return NPU_REASON_ALIAS;
  }
  npu_reduce_attrs attrs{
      .dims = self.dim() < 64
                  ? reduction.dims & ((std::uint64_t{1} << self.dim()) - 1)
                  : reduction.dims,
      .p = reduction.p,
      .correction = reduction.correction,
      .keepdim = reduction.keepdim};
  Call call = site.call();
  const MaybeOperand second(out2);
  build::reduce(call, to_operand(out), second, to_operand(self), attrs);
  call.frame().compute_dtype = reduction.compute;
  return site.run(call, self.device().index());
}

npu_reason run_arg_reduce(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    const at::Tensor& values,
    const at::Tensor& indices,
    std::int64_t k) {
  if (overlaps(values, self) || overlaps(indices, self)) {
    return NPU_REASON_ALIAS;
  }
  npu_arg_reduce_attrs attrs{
      .dim = self.dim() == 0 ? -1 : dim, .k = k, .keepdim = keepdim};
  Call call = site.call();
  const MaybeOperand value_operand(values);
  const MaybeOperand index_operand(indices);
  build::arg_reduce(
      call, value_operand, index_operand, to_operand(self), attrs);
  return site.run(call, self.device().index());
}

}  // namespace npu

namespace npu::ops {

namespace {

// A norm is taken in the output's precision.
npu_reason run_norm(
    NativeSite& site,
    const at::Tensor& self,
    double p,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    const at::Tensor& out) {
  const c10::ScalarType compute =
      self.is_complex() ? self.scalar_type() : out.scalar_type();
  return run_reduce(
      site,
      self,
      {.dims = dims_mask(dim, self),
       .keepdim = keepdim,
       .p = p,
       .compute = to_npu_dtype(compute)},
      out);
}

std::int64_t wrapped(std::int64_t dim, const at::Tensor& self) {
  return at::maybe_wrap_dim(dim, self.dim());
}

}  // namespace

npu_reason reduce_dims(
    NativeSite& site,
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    const at::Tensor& out) {
  return run_reduce(
      site, self, {.dims = dims_mask(dim, self), .keepdim = keepdim}, out);
}

npu_reason reduce_dims(
    NativeSite& site,
    const at::Tensor& self,
    at::IntArrayRef dim,
    bool keepdim,
    const at::Tensor& out) {
  return run_reduce(
      site, self, {.dims = dims_mask(dim, self), .keepdim = keepdim}, out);
}

// An empty list of dims means none of them here, not all.
npu_reason reduce_dims_or_none(
    NativeSite& site,
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    const at::Tensor& out) {
  if (dim.has_value() && dim->empty() && self.dim() != 0) {
    return NPU_REASON_ATTRIBUTE;
  }
  return reduce_dims(site, self, dim, keepdim, out);
}

npu_reason reduce_dim(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    const at::Tensor& out) {
  return run_reduce(
      site, self, {.dims = dim_mask(dim, self), .keepdim = keepdim}, out);
}

npu_reason reduce_all(
    NativeSite& site, const at::Tensor& self, const at::Tensor& out) {
  return run_reduce(site, self, {}, out);
}

npu_reason reduce_aminmax(
    NativeSite& site,
    const at::Tensor& self,
    std::optional<std::int64_t> dim,
    bool keepdim,
    const at::Tensor& min,
    const at::Tensor& max) {
  return run_reduce(
      site,
      self,
      {.dims = dim ? dim_mask(*dim, self) : ~std::uint64_t{0},
       .keepdim = keepdim},
      min,
      max);
}

npu_reason reduce_norm(
    NativeSite& site,
    const at::Tensor& self,
    at::OptionalScalarRef p,
    at::IntArrayRef dim,
    bool keepdim,
    const at::Tensor& out) {
  return run_norm(
      site, self, p.has_value() ? p.get().toDouble() : 2.0, dim, keepdim, out);
}

npu_reason reduce_vector_norm(
    NativeSite& site,
    const at::Tensor& self,
    const at::Scalar& ord,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    const at::Tensor& out) {
  return run_norm(site, self, ord.toDouble(), dim, keepdim, out);
}

npu_reason arg_reduce_dim(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    const at::Tensor& values,
    const at::Tensor& indices) {
  return run_arg_reduce(
      site, self, wrapped(dim, self), keepdim, values, indices);
}

npu_reason arg_reduce_index(
    NativeSite& site,
    const at::Tensor& self,
    std::optional<std::int64_t> dim,
    bool keepdim,
    const at::Tensor& out) {
  return run_arg_reduce(
      site, self, dim ? wrapped(*dim, self) : -1, keepdim, {}, out);
}

}  // namespace npu::ops

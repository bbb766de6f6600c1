// SPDX-License-Identifier: Apache-2.0
// Kind reduce, operators without a structured meta: variance and its siblings,
// nansum, count_nonzero, logsumexp, and reductions of a whole tensor.
#include "aten/ops/op.h"
#include "aten/ops/rows.h"
#include "attempts/reduce.h"

namespace npu::ops {

using Dims = at::OptionalIntArrayRef;
using OptDtype = std::optional<at::ScalarType>;

namespace {

// A given output is as it must be: the CPU rung resizes, and has the errors.
npu_reason run_into(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const Reduction& reduction,
    c10::ScalarType dtype) {
  const at::DimVector sizes =
      reduced_sizes(self, reduction.dims, reduction.keepdim);
  const at::Tensor& given = out.at(0);
  if (given.defined() && !fits(given, self, sizes, dtype)) {
    return kLeaveToCpu;
  }
  set_output(out, 0, sizes, self.options().dtype(dtype));
  return run_reduce(site, self, reduction, out.at(0), out.at(1));
}

// ---- variance ----

// Too few elements are a warning, which the CPU rung has.
npu_reason check_spread(const at::Tensor& self, const Reduction& reduction) {
  std::int64_t count = self.numel();
  for (const std::int64_t size : reduced_sizes(self, reduction.dims, false)) {
    count /= size;
  }
  return static_cast<double>(count) > reduction.correction ? NPU_REASON_NONE
                                                           : NPU_REASON_SIZE;
}

}  // namespace

npu_reason spread(
    NativeSite& site,
    Outputs& out,
    bool and_mean,
    const at::Tensor& self,
    Dims dim,
    const std::optional<at::Scalar>& correction,
    bool keepdim) {
  const Reduction reduction{
      .dims = dims_mask(dim, self),
      .keepdim = keepdim,
      .correction = correction ? correction->toDouble() : 1.0};
  if (const npu_reason why = check_spread(self, reduction)) {
    return why;
  }
  if (and_mean) {
    set_output(out, 1, reduced_sizes(self, reduction.dims, keepdim), self);
  }
  return run_into(
      site, out, self, reduction, c10::toRealValueType(self.scalar_type()));
}

// ---- sums, counts and whole tensors ----

namespace {

// Integers are summed in int64.
c10::ScalarType sum_type(const at::Tensor& self, const OptDtype& dtype) {
  return dtype ? *dtype
         : c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)
             ? c10::ScalarType::Long
             : self.scalar_type();
}

}  // namespace

npu_reason nansum(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    Dims dim,
    bool keepdim,
    OptDtype dtype) {
  return run_into(
      site,
      out,
      self,
      {.dims = dims_mask(dim, self), .keepdim = keepdim},
      sum_type(self, dtype));
}

npu_reason count_nonzero(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    at::IntArrayRef dim) {
  return run_into(
      site, out, self, {.dims = dims_mask(dim, self)}, c10::ScalarType::Long);
}

npu_reason logsumexp(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    at::IntArrayRef dim,
    bool keepdim) {
  const bool whole =
      c10::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  return run_into(
      site,
      out,
      self,
      {.dims = dims_mask(dim, self), .keepdim = keepdim},
      whole ? c10::typeMetaToScalarType(c10::get_default_dtype())
            : self.scalar_type());
}

npu_reason reduce_whole(
    NativeSite& site, Outputs& out, const at::Tensor& self) {
  return run_into(site, out, self, {}, self.scalar_type());
}

npu_reason prod_whole(
    NativeSite& site, Outputs& out, const at::Tensor& self, OptDtype dtype) {
  return run_into(site, out, self, {}, sum_type(self, dtype));
}

}  // namespace npu::ops

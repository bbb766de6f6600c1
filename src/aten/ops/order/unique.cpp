// SPDX-License-Identifier: Apache-2.0
// Kinds unique and bincount: how many first, then the values, where they went
// and how often.
#include <ATen/WrapDimUtils.h>

#include "aten/ops/counted.h"
#include "attempts/order.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

// PyTorch's CPU brings the dim to the front, where the slices lie one after the
// other, and back.
at::Tensor make_slices(
    const at::Tensor& self, std::int64_t dim, std::int64_t n) {
  at::DimVector sizes(self.sizes());
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin(), n);
  return make_empty(sizes, self.scalar_type(), self.device().index())
      .movedim(0, dim);
}

}  // namespace

// Of elements, or of slices along `dim`.
npu_reason unique(
    NativeSite& site,
    Outputs& out,
    bool slices,
    const at::Tensor& self,
    std::int64_t dim,
    bool sorted,
    bool consecutive,
    bool with_inverse,
    bool with_counts) {
  if (slices && self.dim() == 0) {
    return NPU_REASON_NDIM;
  }
  npu_unique_attrs attrs{
      .dim = slices ? at::maybe_wrap_dim(dim, self.dim()) : -1,
      .sorted = sorted,
      .consecutive = consecutive,
      .with_inverse = with_inverse,
      .with_counts = with_counts};
  at::Tensor inverse;
  at::Tensor counts;
  const auto build =
      [&](Call& call, const at::Tensor& total, const at::Tensor& values) {
        fill<build::unique>(call, total, values, inverse, counts, self, attrs);
      };
  Counted counted(site, self);
  if (const npu_reason why = counted.count(build)) {
    return why;
  }
  const std::int64_t n = counted.total();
  if (slices) {
    out.keep(0, make_slices(self, attrs.dim, n));
  } else {
    set_output(out, 0, {n}, self);
  }
  at::DimVector places{0};
  if (with_inverse) {
    places = slices ? self.sizes().slice(attrs.dim, 1) : self.sizes();
  }
  const auto options = self.options().dtype(at::kLong);
  set_output(out, 1, places, options);
  set_output(out, 2, {with_counts ? n : 0}, options);
  inverse = with_inverse ? out.at(1) : at::Tensor();
  counts = with_counts ? out.at(2) : at::Tensor();
  return counted.fill(build, out.at(0));
}

npu_reason unique_runs(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    bool inverse,
    bool counts,
    std::optional<std::int64_t> dim) {
  const std::int64_t along = dim.value_or(0);
  return unique(
      site, out, dim.has_value(), self, along, true, true, inverse, counts);
}

npu_reason bincount(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& weights,
    std::int64_t minlength) {
  if (const npu_reason why = first_failed(
          {{c10::isIntegralType(self.scalar_type(), /*includeBool=*/false),
            NPU_REASON_DTYPE},
           {self.dim() == 1 && minlength >= 0 &&
                has_sizes(weights, self.sizes()),
            kLeaveToCpu}})) {
    return why;
  }
  npu_bincount_attrs attrs{.minlength = minlength};
  const auto build =
      [&](Call& call, const at::Tensor& total, const at::Tensor& bins) {
        fill<build::bincount>(call, total, bins, self, weights, attrs);
      };
  Counted counted(site, self);
  if (const npu_reason why = counted.count(build)) {
    return why;
  }
  const c10::ScalarType type = !weights.defined() ? at::kLong
                               : weights.scalar_type() == at::kFloat
                                   ? at::kFloat
                                   : at::kDouble;
  set_output(out, 0, {counted.total()}, self.options().dtype(type));
  return counted.fill(build, out.at(0));
}

}  // namespace npu::ops

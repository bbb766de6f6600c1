// SPDX-License-Identifier: Apache-2.0
// What adapters of reductions, scans and sorts share.
#pragma once

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <cstdint>

#include "aten/ladder/native.h"
#include "aten/ops/operands.h"
#include "npu/kinds.h"

namespace npu {

// The dimensions as a bit mask; none given means all of them. Throws PyTorch's
// errors for a dimension out of range or given twice.
inline std::uint64_t dims_mask(
    at::OptionalIntArrayRef dims, const at::Tensor& self) {
  if (!dims.has_value() || dims->empty()) {
    return ~std::uint64_t{0};
  }
  return at::dim_list_to_bitset(*dims, self.dim()).to_ullong();
}
inline std::uint64_t dim_mask(std::int64_t dim, const at::Tensor& self) {
  return std::uint64_t{1} << at::maybe_wrap_dim(dim, self.dim());
}

// Sizes of a reduction's result.
inline at::DimVector reduced_sizes(
    const at::Tensor& self, std::uint64_t mask, bool keepdim) {
  at::DimVector sizes;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if ((mask >> d & 1) == 0) {
      sizes.push_back(self.size(d));
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  return sizes;
}

// An output that shares memory with the input: what may and may not be is
// known to the CPU rung.
inline bool overlaps(const at::Tensor& out, const at::Tensor& self) {
  return out.defined() && out.is_alias_of(self);
}
// A given output as it must be: the CPU rung resizes, and has the errors.
inline bool fits(
    const at::Tensor& out,
    const at::Tensor& self,
    at::IntArrayRef sizes,
    c10::ScalarType dtype) {
  return out.scalar_type() == dtype && out.device() == self.device() &&
         out.sizes() == sizes && !overlaps(out, self);
}

struct Reduction {
  std::uint64_t dims = ~std::uint64_t{0};
  bool keepdim = false;
  double p = 0;
  double correction = 0;
  npu_dtype compute = NPU_ABSENT;
};
npu_reason run_reduce(
    NativeSite& site,
    const at::Tensor& self,
    const Reduction& reduction,
    const at::Tensor& out,
    const at::Tensor& out2 = {});

// dim -1: over all elements. Either output may be undefined.
npu_reason run_arg_reduce(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    bool keepdim,
    const at::Tensor& values,
    const at::Tensor& indices,
    std::int64_t k = 0);

}  // namespace npu

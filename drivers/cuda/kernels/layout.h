// SPDX-License-Identifier: Apache-2.0
// The dimensions that up to five operands of equal sizes have in common,
// reduced to what matters, as kernels are given them.
#pragma once

#include <cstdint>

#include "npu/op.h"
#include "shared/dtype.h"
#include "shared/inline.h"

namespace npu::cuda {

inline constexpr int kMostDims = 16;  // what caps say: max_ndim

// Dimensions of size 1 are dropped and neighbours merged where all operands
// allow it. Strides in bytes.
template <int kOperands>
struct Layout {
  std::int64_t numel;
  std::int32_t ndim;
  std::int32_t wide;  // 1: numel needs 64 bits
  std::int64_t sizes[kMostDims];
  std::int64_t strides[kOperands][kMostDims];

  // Offsets of element i, counted in the order of the sizes.
  NPU_SHARED_INLINE void offsets(
      std::int64_t i, std::int64_t (&out)[kOperands]) const {
    if (ndim == 1) {
      for (int k = 0; k < kOperands; ++k) {
        out[k] = i * strides[k][0];
      }
      return;
    }
    for (int k = 0; k < kOperands; ++k) {
      out[k] = 0;
    }
    if (wide != 0) {
      walk<std::uint64_t>(static_cast<std::uint64_t>(i), out);
    } else {
      walk<std::uint32_t>(static_cast<std::uint32_t>(i), out);
    }
  }

 private:
  template <class Index>
  NPU_SHARED_INLINE void walk(Index i, std::int64_t (&out)[kOperands]) const {
    for (int d = ndim - 1; d > 0; --d) {
      const auto size = static_cast<Index>(sizes[d]);
      const Index rest = i / size;
      const auto at = static_cast<std::int64_t>(i - rest * size);
      for (int k = 0; k < kOperands; ++k) {
        out[k] += at * strides[k][d];
      }
      i = rest;
    }
    for (int k = 0; k < kOperands; ++k) {
      out[k] += static_cast<std::int64_t>(i) * strides[k][0];
    }
  }
};

// A null operand, and one in host memory, has stride 0. The first gives the
// sizes. False: more dimensions than kMostDims.
template <int kOperands>
bool make_layout(
    Layout<kOperands>& out, const npu_tensor* const* operands) noexcept {
  const npu_tensor& first = *operands[0];
  out.numel = first.numel;
  out.wide = first.numel > INT32_MAX ? 1 : 0;
  out.ndim = 0;
  for (std::uint32_t d = 0; d < first.ndim; ++d) {
    const std::int64_t size = first.sizes[d];
    if (size == 1) {
      continue;
    }
    std::int64_t strides[kOperands];
    bool merges = out.ndim > 0;
    for (int k = 0; k < kOperands; ++k) {
      const npu_tensor* const t = operands[k];
      const bool moves = t && t->dtype != NPU_ABSENT && d < t->ndim &&
                         (t->flags & NPU_TENSOR_HOST_SCALAR) == 0;
      strides[k] = moves
                       ? t->strides[d] *
                             static_cast<std::int64_t>(element_bytes(t->dtype))
                       : 0;
      merges = merges && out.strides[k][out.ndim - 1] == size * strides[k];
    }
    if (!merges) {
      if (out.ndim == kMostDims) {
        return false;
      }
      ++out.ndim;
      out.sizes[out.ndim - 1] = 1;
    }
    out.sizes[out.ndim - 1] *= size;
    for (int k = 0; k < kOperands; ++k) {
      out.strides[k][out.ndim - 1] = strides[k];
    }
  }
  if (out.ndim == 0) {
    out.ndim = 1;
    out.sizes[0] = 1;
    for (int k = 0; k < kOperands; ++k) {
      out.strides[k][0] = 0;
    }
  }
  return true;
}

}  // namespace npu::cuda

// SPDX-License-Identifier: Apache-2.0
// Ordering and merging of dimensions.
#include "kernels/layout.h"

#include <utility>

namespace npu::host {

void Layout::set(
    const npu_tensor& out,
    std::int64_t out_bytes,
    const npu_tensor* in,
    std::int64_t in_bytes) noexcept {
  ndim = 0;
  numel = out.numel;
  for (int d = 0; d < out.ndim; ++d) {
    if (out.sizes[d] == 1) {
      continue;
    }
    int at = ndim++;
    sizes[at] = out.sizes[d];
    dst[at] = out.strides[d] * out_bytes;
    src[at] = in ? in->strides[d] * in_bytes : 0;
    for (; at > 0 && dst[at - 1] < dst[at]; --at) {
      std::swap(sizes[at - 1], sizes[at]);
      std::swap(dst[at - 1], dst[at]);
      std::swap(src[at - 1], src[at]);
    }
  }
  if (ndim == 0) {
    append(1, out_bytes, in ? in_bytes : 0);
  }
  merge();
}

void Layout::append(
    std::int64_t size,
    std::int64_t dst_stride,
    std::int64_t src_stride) noexcept {
  sizes[ndim] = size;
  dst[ndim] = dst_stride;
  src[ndim] = src_stride;
  ++ndim;
}

void Layout::merge() noexcept {
  int last = 0;
  for (int d = 1; d < ndim; ++d) {
    if (dst[last] == dst[d] * sizes[d] && src[last] == src[d] * sizes[d]) {
      sizes[last] *= sizes[d];
    } else {
      sizes[++last] = sizes[d];
    }
    dst[last] = dst[d];
    src[last] = src[d];
  }
  ndim = last + 1;
}

}  // namespace npu::host

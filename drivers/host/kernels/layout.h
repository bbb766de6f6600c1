// SPDX-License-Identifier: Apache-2.0
// The dimensions of a destination and a source, reduced to what matters.
#pragma once

#include <cstdint>

#include "npu/op.h"

namespace npu::host {

// Dims of size 1 dropped, ordered so that destination strides descend, and
// merged where both sides allow. Strides in bytes.
struct Layout {
  int ndim = 0;  // at least 1 after set
  std::int64_t numel = 0;
  std::int64_t sizes[NPU_MAX_DIMS + 1];
  std::int64_t dst[NPU_MAX_DIMS + 1];
  std::int64_t src[NPU_MAX_DIMS + 1];

  // `in` may be null: every source stride is 0.
  void set(
      const npu_tensor& out,
      std::int64_t out_bytes,
      const npu_tensor* in,
      std::int64_t in_bytes) noexcept;
  // One more dim, inside all others.
  void append(
      std::int64_t size,
      std::int64_t dst_stride,
      std::int64_t src_stride) noexcept;
  void merge() noexcept;
};

// A position in a layout that walks along its innermost dim.
class Walker {
 public:
  // Only the first `ndim` dims are walked.
  Walker(const Layout& layout, int ndim, std::int64_t index) noexcept
      : layout_(layout), ndim_(ndim) {
    for (int d = ndim - 1; d >= 0; --d) {
      at_[d] = index % layout.sizes[d];
      index /= layout.sizes[d];
      dst_ += at_[d] * layout.dst[d];
      src_ += at_[d] * layout.src[d];
    }
  }

  std::int64_t dst() const noexcept {
    return dst_;
  }
  std::int64_t src() const noexcept {
    return src_;
  }
  // Elements left in the innermost dim.
  std::int64_t left() const noexcept {
    return layout_.sizes[ndim_ - 1] - at_[ndim_ - 1];
  }
  // Goes on by at most left() elements.
  void advance(std::int64_t n) noexcept {
    int d = ndim_ - 1;
    move(d, n);
    while (d > 0 && at_[d] == layout_.sizes[d]) {
      move(d, -layout_.sizes[d]);
      move(--d, 1);
    }
  }

 private:
  void move(int d, std::int64_t n) noexcept {
    at_[d] += n;
    dst_ += n * layout_.dst[d];
    src_ += n * layout_.src[d];
  }

  const Layout& layout_;
  int ndim_;
  std::int64_t dst_ = 0;
  std::int64_t src_ = 0;
  std::int64_t at_[NPU_MAX_DIMS + 1];
};

}  // namespace npu::host

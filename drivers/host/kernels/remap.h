// SPDX-License-Identifier: Apache-2.0
// Elements read from other coordinates, dim by dim: pad, flip, roll,
// index_select, nearest neighbours.
#pragma once

#include <cstdint>
#include <vector>

#include "npu/op.h"

namespace npu::host {

// out[i0, i1, ...] = in[s0[i0], s1[i1], ...], and `value` where a source is -1.
// Dims without a table read the same coordinate.
class Remap {
 public:
  Remap(
      const npu_tensor& out, const npu_tensor& in, const void* value = nullptr)
      : out_(out), in_(in), value_(value), tables_(out.ndim) {}

  std::vector<std::int64_t>& operator[](std::int64_t dim) {
    return tables_[static_cast<std::size_t>(dim)];
  }
  npu_status run();

 private:
  void join_trailing_dims();
  void make_offsets();

  const npu_tensor& out_;
  const npu_tensor& in_;
  const void* value_;
  std::vector<std::vector<std::int64_t>> tables_;
  int ndim_ = 0;            // dims that are not part of a block
  std::int64_t block_ = 0;  // bytes that are moved together
};

}  // namespace npu::host

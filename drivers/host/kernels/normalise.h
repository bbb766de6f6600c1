// SPDX-License-Identifier: Apache-2.0
// Family normalise: its rows, which lie in several files.
#pragma once

#include "kernels/dense.h"

namespace npu::host {

// The slices of a dense tensor at each index of one dimension.
struct Slices {
  Slices(const npu_tensor& tensor, std::int64_t dim) {
    for (std::int64_t d = 0; d < tensor.ndim; ++d) {
      (d == dim ? count : d > dim ? inner : outer) *= tensor.sizes[d];
    }
  }
  // fn(index) for each element of slice s.
  template <class Fn>
  void each(std::int64_t s, Fn fn) const {
    for (std::int64_t o = 0; o < outer; ++o) {
      const std::int64_t first = (o * count + s) * inner;
      for (std::int64_t i = first; i < first + inner; ++i) {
        fn(i);
      }
    }
  }
  // fn(s) for each slice, on several threads.
  template <class Fn>
  npu_status for_each(Fn fn) const {
    return for_each_item(count, outer * inner * 2, fn);
  }
  double elements() const {  // of one slice
    return static_cast<double>(outer * inner);
  }
  std::int64_t outer = 1;
  std::int64_t count = 1;
  std::int64_t inner = 1;
};

npu_status softmax_caps(std::uint32_t code, npu_op_caps& out);
npu_status softmax_run(const npu_call& call);
npu_status softmax_grad_run(const npu_call& call);

npu_status layer_norm_run(const npu_call& call);
npu_status layer_norm_grad_run(const npu_call& call);
npu_status rms_norm_run(const npu_call& call);
npu_status rms_norm_grad_run(const npu_call& call);
npu_status group_norm_run(const npu_call& call);
npu_status group_norm_grad_run(const npu_call& call);

npu_status batch_norm_stats_run(const npu_call& call);
npu_status batch_norm_apply_run(const npu_call& call);
npu_status batch_norm_grad_reduce_run(const npu_call& call);
npu_status batch_norm_grad_apply_run(const npu_call& call);
npu_status batch_norm_run(const npu_call& call);
npu_status batch_norm_grad_run(const npu_call& call);

}  // namespace npu::host

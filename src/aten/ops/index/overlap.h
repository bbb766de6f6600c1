// SPDX-License-Identifier: Apache-2.0
// What PyTorch asks of an out= tensor beside those that are read.
#pragma once

#include <ATen/MemoryOverlap.h>

namespace npu::ops {

// Throws where a given `out` shares memory with itself or with what is read.
template <class... Tensors>
void check_overlap(const at::Tensor& out, const Tensors&... reads) {
  if (out.defined()) {
    at::assert_no_internal_overlap(out);
    (at::assert_no_overlap(out, reads), ...);
  }
}

}  // namespace npu::ops

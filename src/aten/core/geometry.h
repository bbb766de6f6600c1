// SPDX-License-Identifier: Apache-2.0
// Sizes and strides of N operands as drivers are promised them: broadcast,
// coalesced, and with the output's strides descending.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>

#include "npu/op.h"

namespace npu {

template <int N>
class Geometry {
 public:
  // Operand i of `iter` becomes operand i here.
  explicit Geometry(const at::TensorIteratorBase& iter) {
    const int ndim = iter.ndim();
    sizes_.resize(ndim);
    for (int d = 0; d < ndim; ++d) {
      sizes_[d] = iter.shape()[ndim - 1 - d];
      numel_ *= sizes_[d];
    }
    for (int i = 0; i < N; ++i) {
      const auto item = static_cast<std::int64_t>(iter.element_size(i));
      strides_[i].resize(ndim);
      for (int d = 0; d < ndim; ++d) {
        const std::int64_t bytes = iter.strides(i)[ndim - 1 - d];
        // A dimension of size 1 may carry any stride; 0 says nothing wrong.
        strides_[i][d] = sizes_[d] == 1 ? 0 : bytes / item;
      }
    }
  }

  int ndim() const {
    return static_cast<int>(sizes_.size());
  }

  // True when operand i lies densely in memory, in the order of the others.
  bool is_contiguous(int i) const {
    std::int64_t expected = 1;
    for (int d = ndim() - 1; d >= 0; --d) {
      if (sizes_[d] != 1 && strides_[i][d] != expected) {
        return false;
      }
      expected *= sizes_[d];
    }
    return true;
  }

  // Puts the sizes and strides into an operand. This object outlives the call.
  void apply(npu_tensor& operand, int i) const {
    operand.sizes = sizes_.data();
    operand.strides = strides_[i].data();
    operand.ndim = static_cast<std::uint16_t>(ndim());
    operand.numel = numel_;
    operand.flags &= ~(NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE);
    if (is_contiguous(i)) {
      operand.flags |= NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
    }
  }

 private:
  using Dims = c10::SmallVector<std::int64_t, 6>;
  Dims sizes_;
  std::array<Dims, N> strides_;
  std::int64_t numel_ = 1;
};

}  // namespace npu

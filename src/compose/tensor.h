// SPDX-License-Identifier: Apache-2.0
// A view of device memory that can be sliced, expanded and permuted.
#pragma once

#include <cstdint>
#include <vector>

#include "npu/op.h"

namespace npu::compose {

using Sizes = std::vector<std::int64_t>;

class Tensor {
 public:
  Tensor() = default;  // absent
  explicit Tensor(const npu_tensor& operand);
  // Contiguous, over `data`.
  Tensor(npu_dtype dtype, Sizes sizes, void* data, npu_device device);

  explicit operator bool() const noexcept {
    return view_.dtype != NPU_ABSENT;
  }
  npu_dtype dtype() const noexcept {
    return view_.dtype;
  }
  int ndim() const noexcept {
    return static_cast<int>(sizes_.size());
  }
  const Sizes& sizes() const noexcept {
    return sizes_;
  }
  const Sizes& strides() const noexcept {
    return strides_;
  }
  std::int64_t size(int dim) const {
    return sizes_[static_cast<std::size_t>(dim)];
  }
  std::int64_t numel() const noexcept;

  // Elements [first, first + n) of a dimension.
  Tensor slice(int dim, std::int64_t first, std::int64_t n) const;
  // One more dimension of size 1.
  Tensor unsqueeze(int dim) const;
  // Sizes 1 become what is asked for; missing leading dimensions are added.
  Tensor expand(const Sizes& sizes) const;
  // Any sizes of as many elements, of a contiguous tensor.
  Tensor reshape(Sizes sizes) const;
  bool is_contiguous() const noexcept;

  // The operand; points into this tensor.
  npu_tensor operand() const noexcept;
  // The same with other dimensions, which outlive the operand.
  npu_tensor operand(const Sizes& sizes, const Sizes& strides) const noexcept;

 private:
  npu_tensor view_{};
  Sizes sizes_;
  Sizes strides_;
};

// The sizes both broadcast to.
Sizes broadcast(const Sizes& a, const Sizes& b);

}  // namespace npu::compose

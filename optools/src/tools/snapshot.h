// SPDX-License-Identifier: Apache-2.0
// Copies of a call's tensors in host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace optools {

// Of a tensor that is not unreadable_now(): same values, sizes and dtype; same
// strides where those leave no gaps. Be Quiet and below autograd.
at::Tensor host_copy(const at::Tensor& t);

// Does a tensor still hold the bytes of its host_copy()? True where that cannot
// be told: its layout has changed, or has gaps.
bool unchanged(const at::Tensor& now, const at::Tensor& copy);

// An empty tensor of the same geometry and place in its storage.
at::Tensor geometry(const at::Tensor& t);

// One tensor given twice has one copy.
class Copies {
 public:
  at::Tensor of(const at::Tensor& t);
  size_t bytes() const {
    return bytes_;
  }
  // Did every copy keep its tensor's strides?
  bool true_strides() const {
    return true_strides_;
  }
  const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs() const {
    return pairs_;
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
  size_t bytes_ = 0;
  bool true_strides_ = true;
};

}  // namespace optools

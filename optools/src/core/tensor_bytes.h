// SPDX-License-Identifier: Apache-2.0
// A tensor's contents as dense bytes, without an operator where it is in host
// memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string_view>

namespace optools {

// How a tensor's elements become a row of bytes: its memory from the first
// element to the last where that is no more than the elements (a dense or an
// overlapping tensor), else its elements in the order of their strides, each
// repeated one (stride 0) once.
struct DenseForm {
  bool packed = false;
  int64_t elements = 0;
  // Of a packed one: without dimensions of one element or of stride 0, largest
  // stride first.
  c10::SmallVector<int64_t, 6> sizes;
  c10::SmallVector<int64_t, 6> strides;
};
DenseForm dense_form(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// Why a tensor's contents cannot be read, or null.
const char* unreadable(const at::Tensor& t);
// Why not just now: what reads a device would become part of a graph it
// records.
const char* recorded(const at::Tensor& t);
inline const char* unreadable_now(const at::Tensor& t) {
  const char* why = unreadable(t);
  return why != nullptr ? why : recorded(t);
}

class TensorBytes {
 public:
  // Of a tensor that is not unreadable(), of this form. Valid while the tensor
  // is unchanged. Runs operators for a tensor elsewhere than in host memory:
  // call it inside Quiet. It waits for the device.
  TensorBytes(const at::Tensor& t, const DenseForm& form);

  std::string_view view() const {
    return bytes_;
  }

 private:
  void read_host(const at::Tensor& t);
  void read_device(const at::Tensor& t);

  const DenseForm& form_;
  std::string_view bytes_;
  std::unique_ptr<char[]> own_;
  at::Tensor copy_;
};

}  // namespace optools

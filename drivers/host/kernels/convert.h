// SPDX-License-Identifier: Apache-2.0
// Conversions between any two dtypes, as PyTorch's copy_ converts.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/isa/convert.h"
#include "npu/op.h"

namespace npu::host {

// Real dtype to real dtype, in at most four steps through small buffers; no
// step at all when the dtypes are equal. Complex tensors are converted part by
// part.
class Conversion {
 public:
  // False when a dtype is complex, packed in less than a byte, or unknown.
  bool set(npu_dtype to, npu_dtype from, bool negate) noexcept;

  bool is_copy() const noexcept {
    return n_steps_ == 0;
  }
  // Strides in bytes. dst may be src when sizes and strides are equal.
  void line(
      char* dst,
      std::int64_t dst_stride,
      const char* src,
      std::int64_t src_stride,
      std::int64_t n) const noexcept;

 private:
  struct Step {
    ConvertFn fn;
    std::uint32_t out_bytes;
  };
  void add(ConvertFn fn, std::uint32_t out_bytes) noexcept {
    steps_[n_steps_++] = {fn, out_bytes};
  }

  Step steps_[4];
  int n_steps_ = 0;
  std::uint32_t dst_bytes_ = 0;
  std::uint32_t src_bytes_ = 0;
};

// The dtype of the real and imaginary part; NPU_ABSENT when not complex.
constexpr npu_dtype part_dtype(npu_dtype dtype) noexcept {
  switch (dtype) {
    case NPU_C32:
      return NPU_F16;
    case NPU_C64:
      return NPU_F32;
    case NPU_C128:
      return NPU_F64;
    default:
      return NPU_ABSENT;
  }
}

// n elements of `bytes` each, strides in bytes.
void copy_line(
    std::uint32_t bytes,
    char* dst,
    std::int64_t dst_stride,
    const char* src,
    std::int64_t src_stride,
    std::int64_t n) noexcept;

// A scalar as one element of `dtype` (at most 16 bytes). False: no such dtype.
bool convert_scalar(
    npu_dtype dtype, const npu_scalar& scalar, void* out) noexcept;

}  // namespace npu::host

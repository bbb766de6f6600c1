// SPDX-License-Identifier: Apache-2.0
// How the elements of an operand lie in memory.
#include <algorithm>
#include <array>
#include <limits>

#include "driver/verdict.h"
#include "npu/validate.h"

namespace npu {

bool fits_index32(const npu_tensor& tensor) noexcept {
  const auto bytes = static_cast<std::int64_t>(npu_dtype_bytes(tensor.dtype));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::int64_t reach = bytes;
  for (std::uint32_t d = 0; d < tensor.ndim; ++d) {
    const std::int64_t size = tensor.sizes[d];
    const std::int64_t stride =
        tensor.strides[d] < 0 ? -tensor.strides[d] : tensor.strides[d];
    if (size > 1 && stride > 0) {
      // Both factors are bounded first, so that nothing overflows.
      if (stride > kMost || size - 1 > kMost / stride) {
        return false;
      }
      reach += (size - 1) * stride * bytes;
    }
    if (reach > kMost) {
      return false;
    }
  }
  return true;
}

bool is_contiguous(const npu_tensor& tensor) noexcept {
  if (tensor.numel == 0) {
    return true;
  }
  std::int64_t expected = 1;
  for (std::uint32_t d = tensor.ndim; d-- > 0;) {
    const std::int64_t size = tensor.sizes[d];
    if (size != 1 && tensor.strides[d] != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

bool fits_index32(const npu_list& list) noexcept {
  if (list.tensors != nullptr) {
    return std::all_of(
        list.tensors, list.tensors + list.n, [](const npu_tensor& tensor) {
          return fits_index32(tensor);
        });
  }
  const auto bytes = static_cast<std::int64_t>(npu_dtype_bytes(list.dtype));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return list.n == 0 || bytes == 0 ||
         std::all_of(list.numel, list.numel + list.n, [=](std::int64_t numel) {
           return numel <= kMost / bytes;
         });
}

bool is_dense(const npu_tensor& tensor) noexcept {
  if (tensor.numel == 0) {
    return true;
  }
  std::array<std::uint32_t, NPU_MAX_DIMS> order;
  std::uint32_t n = 0;
  for (std::uint32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.sizes[d] != 1) {
      order[n++] = d;
    }
  }
  std::sort(order.begin(), order.begin() + n, [&](auto a, auto b) {
    return tensor.strides[a] < tensor.strides[b];
  });
  std::int64_t expected = 1;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (tensor.strides[order[i]] != expected) {
      return false;
    }
    expected *= tensor.sizes[order[i]];
  }
  return true;
}

bool is_channels_last(const npu_tensor& tensor) noexcept {
  constexpr std::uint32_t kLeast = 3;
  constexpr std::uint32_t kMost = 5;
  if (tensor.ndim < kLeast || tensor.ndim > kMost) {
    return false;
  }
  if (tensor.numel == 0) {
    return true;
  }
  std::int64_t expected = 1;
  const auto follows = [&](std::uint32_t d) {
    const bool right = tensor.sizes[d] == 1 || tensor.strides[d] == expected;
    expected *= tensor.sizes[d];
    return right;
  };
  bool right = follows(1);
  for (std::uint32_t d = tensor.ndim - 1; d >= 2; --d) {
    right = follows(d) && right;
  }
  return follows(0) && right;
}

bool has_inner_stride_1(const npu_tensor& tensor) noexcept {
  return tensor.numel == 0 || tensor.ndim == 0 ||
         tensor.sizes[tensor.ndim - 1] == 1 ||
         tensor.strides[tensor.ndim - 1] == 1;
}

bool takes_layout(
    const npu_op_caps& caps,
    const npu_tensor& tensor,
    bool is_output) noexcept {
  const auto has = [&](std::uint32_t flag) { return (caps.flags & flag) != 0; };
  return has(is_output ? NPU_CAP_STRIDED_OUT : NPU_CAP_STRIDED_IN) ||
         is_contiguous(tensor) ||
         (has(is_output ? NPU_CAP_DENSE_OUT : NPU_CAP_DENSE_IN) &&
          is_dense(tensor)) ||
         (has(NPU_CAP_CHANNELS_LAST) && is_channels_last(tensor)) ||
         (has(NPU_CAP_INNER_STRIDE_1) && has_inner_stride_1(tensor));
}

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// Tensors as rows: the dimensions an operator works along brought to the end,
// so that reductions, scans and sorts see one contiguous row after another.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>

#include "kernels/dense.h"
#include "kernels/kernel.h"

namespace npu::host {

// `tensor` with the dimensions in `mask` last, in order.
struct RowView {
  RowView(const npu_tensor& from, std::uint64_t mask) noexcept : tensor(from) {
    int at = 0;
    for (const bool chosen : {false, true}) {
      for (int d = 0; d < from.ndim; ++d) {
        if (((mask >> d) & 1) == (chosen ? 1u : 0u)) {
          sizes[at] = from.sizes[d];
          strides[at] = from.strides[d];
          (chosen ? length : rows) *= from.sizes[d];
          ++at;
        }
      }
    }
    tensor.sizes = sizes;
    tensor.strides = strides;
    std::int64_t expected = 1;
    bool contiguous = true;
    for (int d = from.ndim - 1; d >= 0; --d) {
      contiguous &= sizes[d] == 1 || strides[d] == expected;
      expected *= sizes[d];
    }
    tensor.flags &= ~(NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE);
    tensor.flags |= contiguous ? NPU_TENSOR_CONTIGUOUS : 0u;
  }
  RowView(const RowView&) = delete;
  RowView& operator=(const RowView&) = delete;

  npu_tensor tensor;
  std::int64_t rows = 1;
  std::int64_t length = 1;
  std::int64_t sizes[NPU_MAX_DIMS];
  std::int64_t strides[NPU_MAX_DIMS];
};

// Every dimension, or the one called dim.
inline std::uint64_t row_mask(std::int64_t dim) noexcept {
  return dim < 0 ? ~UINT64_C(0) : UINT64_C(1) << dim;
}

// Rows to read.
template <class T>
class RowsIn {
 public:
  RowsIn(const npu_tensor& tensor, std::uint64_t mask)
      : view_(tensor, mask), data_(&view_.tensor) {}
  npu_status status() const noexcept {
    return data_.status();
  }
  std::int64_t rows() const noexcept {
    return view_.rows;
  }
  std::int64_t length() const noexcept {
    return view_.length;
  }
  const T* row(std::int64_t i) const noexcept {
    return data_.data() + i * view_.length;
  }

 private:
  RowView view_;
  Loaded<T> data_;
};

// Rows to write; an absent output is not stored.
template <class T>
class RowsOut {
 public:
  RowsOut(const npu_tensor* tensor, std::uint64_t mask)
      : view_(tensor ? *tensor : npu_tensor{}, mask),
        data_(tensor ? &view_.tensor : nullptr, Stored<T>::kAsIs) {}
  explicit operator bool() const noexcept {
    return static_cast<bool>(data_);
  }
  std::int64_t length() const noexcept {
    return view_.length;
  }
  T* row(std::int64_t i) const noexcept {
    return data_ ? data_.data() + i * view_.length : nullptr;
  }
  npu_status store() const {
    return data_ ? data_.store() : NPU_OK;
  }

 private:
  RowView view_;
  Stored<T> data_;
};

// Rows a thread should have.
inline std::int64_t row_grain(std::int64_t length) noexcept {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, length));
}

// Says no where the answer among equal elements is PyTorch's own and no rule:
// for dtypes in which elements are often equal.
inline npu_status decline_ties(npu_dtype dtype, npu_verdict& verdict) noexcept {
  if (dtype != NPU_F32 && dtype != NPU_F64) {
    verdict.answer = NPU_VERDICT_NO;
    verdict.reason = NPU_REASON_DTYPE;
    std::snprintf(
        verdict.detail,
        sizeof(verdict.detail),
        "which of equal %s comes first",
        dtype_name(dtype));
  }
  return NPU_OK;
}

// Numbers in the order of sorts: NaN is greater than all.
template <class T>
bool is_not_number(T x) noexcept {
  return x != x;
}
template <class T>
bool comes_before(T x, T y) noexcept {
  return x < y || (is_not_number(y) && !is_not_number(x));
}

}  // namespace npu::host

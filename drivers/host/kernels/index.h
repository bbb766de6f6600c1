// SPDX-License-Identifier: Apache-2.0
// What kernels with indices share: checked indices, reductions into places.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/dense.h"
#include "kernels/kernel.h"
#include "kernels/nest.h"

namespace npu::host {

enum class Negative { kRefused, kFromEnd };

// Indices as contiguous int64, each within a dim: a kernel that uses them reads
// and writes nothing out of bounds. An index that is not is an error, and then
// nothing is written.
class Indices {
 public:
  Indices(
      const npu_tensor& tensor,
      std::int64_t size,
      Negative negative,
      std::int64_t dim);
  npu_status status() const noexcept {
    return status_;
  }
  const std::int64_t* data() const noexcept {
    return data_;
  }
  std::int64_t operator[](std::int64_t i) const noexcept {
    return data_[i];
  }

 private:
  Loaded<std::int64_t> loaded_;
  std::vector<std::int64_t> wrapped_;
  const std::int64_t* data_;
  npu_status status_;
};

// The places an indexed tensor is read or written at, for each index of the
// `indices` list of kinds index and index_put.
class Places {
 public:
  // `unit` is what strides of `tensor` are multiplied with.
  Places(
      const npu_tensor& tensor,
      const npu_list& indices,
      std::int64_t unit,
      const std::int64_t* strides);
  npu_status status() const noexcept {
    return status_;
  }
  // The operand whose sizes are those of all indices.
  const npu_tensor& shape() const noexcept {
    return *shape_;
  }
  const std::int64_t* data() const noexcept {
    return offsets_.data();
  }

 private:
  const npu_tensor* shape_ = nullptr;
  std::vector<std::int64_t> offsets_;
  npu_status status_ = NPU_OK;
};

enum class Reduction { kSum, kProduct, kMin, kMax, kMean };

// NaN wins.
template <class T>
T combine(Reduction reduction, T a, T b) {
  if (reduction == Reduction::kProduct) {
    return a * b;
  }
  if constexpr (!std::is_same_v<T, Complex>) {
    if (reduction == Reduction::kMin) {
      return b != b || b < a ? b : a;
    }
    if (reduction == Reduction::kMax) {
      return b != b || b > a ? b : a;
    }
  }
  return a + b;
}

// Values reduced into elements of an output, one after the other.
template <class T>
class Reducer {
 public:
  // Without `include_self` the first value replaces what was there.
  Reducer(Reduction reduction, bool include_self, T* out, std::int64_t numel)
      : reduction_(reduction), out_(out) {
    if (!include_self || reduction == Reduction::kMean) {
      counts_.resize(static_cast<std::size_t>(numel), include_self ? 1 : 0);
    }
  }
  void add(std::int64_t i, T value) {
    const bool first =
        !counts_.empty() && counts_[static_cast<std::size_t>(i)]++ == 0;
    out_[i] = first ? value : combine(reduction_, out_[i], value);
  }
  void finish() {
    if (reduction_ != Reduction::kMean) {
      return;
    }
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] > 1) {
        out_[i] = divided(out_[i], counts_[i]);
      }
    }
  }

 private:
  static T divided(T sum, std::int64_t n) {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      const T quotient = sum / n;
      return quotient - (sum % n < 0 ? 1 : 0);  // rounded down
    } else if constexpr (std::is_same_v<T, Complex>) {
      return sum / static_cast<double>(n);
    } else {
      return sum / static_cast<T>(n);
    }
  }

  Reduction reduction_;
  T* out_;
  std::vector<std::int64_t> counts_;
};

}  // namespace npu::host

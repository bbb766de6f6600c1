// SPDX-License-Identifier: Apache-2.0
// The bytes that an operator reads or writes, and whether two of them meet.
#include "runtime/sanitizer/region.h"

#include <algorithm>

namespace npu::sanitizer {

Region::Region(const void* data, std::size_t bytes)
    : begin_(reinterpret_cast<std::uintptr_t>(data)),
      end_(begin_ + bytes),
      run_(static_cast<std::int64_t>(bytes)) {}

Region::Region(
    const void* data,
    std::size_t item_bytes,
    std::span<const std::int64_t> sizes,
    std::span<const std::int64_t> strides)
    : begin_(reinterpret_cast<std::uintptr_t>(data)),
      end_(begin_),
      run_(static_cast<std::int64_t>(item_bytes)) {
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) {
      return;
    }
    if (sizes[d] > 1 && strides[d] != 0) {
      dims_.push_back({sizes[d], strides[d] * run_, 0});
    }
  }
  std::ranges::sort(dims_, {}, &Dim::stride);
  // The innermost dimensions that continue the run, then pairs of others.
  std::vector<Dim> left;
  for (const Dim& dim : dims_) {
    if (left.empty() && dim.stride <= run_) {
      run_ += (dim.size - 1) * dim.stride;
    } else if (
        !left.empty() && dim.stride == left.back().stride * left.back().size) {
      left.back().size *= dim.size;
    } else {
      left.push_back(dim);
    }
  }
  std::int64_t extent = run_;
  for (Dim& dim : left) {
    dim.extent = extent;
    extent += (dim.size - 1) * dim.stride;
  }
  std::ranges::reverse(left);
  dims_ = std::move(left);
  end_ = begin_ + static_cast<std::uintptr_t>(extent);
}

std::int64_t Region::span_of(std::span<const Dim> dims, std::int64_t run) {
  return dims.empty() ? run
                      : dims[0].extent + (dims[0].size - 1) * dims[0].stride;
}

bool Region::meet(
    std::uintptr_t a,
    std::span<const Dim> a_dims,
    std::uintptr_t b,
    std::span<const Dim> b_dims,
    const Region& first,
    const Region& second,
    int& steps) {
  const std::int64_t a_span = span_of(a_dims, first.run_);
  const std::int64_t b_span = span_of(b_dims, second.run_);
  const auto apart = static_cast<std::int64_t>(b - a);
  if (apart >= a_span || -apart >= b_span) {
    return false;
  }
  if ((a_dims.empty() && b_dims.empty()) || --steps < 0) {
    return true;
  }
  // Rows of one pitch, such as two column ranges of a matrix: only how many
  // rows they are apart matters.
  if (!a_dims.empty() && !b_dims.empty() &&
      a_dims[0].stride == b_dims[0].stride) {
    const std::int64_t stride = a_dims[0].stride;
    const std::int64_t a_row = a_dims[0].extent;
    const std::int64_t b_row = b_dims[0].extent;
    // apart + rows * stride in (-b_row, a_row)
    const auto floor_div = [](std::int64_t x, std::int64_t y) {
      return x / y - (x % y != 0 && x < 0 ? 1 : 0);
    };
    const std::int64_t low =
        std::max(floor_div(-b_row - apart, stride) + 1, 1 - a_dims[0].size);
    const std::int64_t high =
        std::min(floor_div(a_row - 1 - apart, stride), b_dims[0].size - 1);
    for (std::int64_t rows = low; rows <= high; ++rows) {
      if (meet(
              a,
              a_dims.subspan(1),
              b + static_cast<std::uintptr_t>(rows * stride),
              b_dims.subspan(1),
              first,
              second,
              steps)) {
        return true;
      }
    }
    return false;
  }
  if (a_dims.empty() || (!b_dims.empty() && b_span > a_span)) {
    return meet(b, b_dims, a, a_dims, second, first, steps);
  }
  // The steps of the first whose span meets the second's.
  const Dim& dim = a_dims[0];
  const std::int64_t from = apart - dim.extent + 1;
  const std::int64_t low = from <= 0 ? 0 : (from + dim.stride - 1) / dim.stride;
  const std::int64_t high =
      std::min((apart + b_span - 1) / dim.stride, dim.size - 1);
  for (std::int64_t k = low; k <= high; ++k) {
    if (meet(
            a + static_cast<std::uintptr_t>(k * dim.stride),
            a_dims.subspan(1),
            b,
            b_dims,
            first,
            second,
            steps)) {
      return true;
    }
  }
  return false;
}

bool Region::meets(const Region& other) const {
  if (empty() || other.empty() || end_ <= other.begin_ ||
      other.end_ <= begin_) {
    return false;
  }
  int steps = kMostSteps;
  return meet(begin_, dims_, other.begin_, other.dims_, *this, other, steps);
}

bool Region::covers(const Region& other) const {
  if (is_one_run()) {
    return begin_ <= other.begin_ && other.end_ <= end_;
  }
  return begin_ == other.begin_ && end_ == other.end_ && run_ == other.run_ &&
         dims_ == other.dims_;
}

}  // namespace npu::sanitizer

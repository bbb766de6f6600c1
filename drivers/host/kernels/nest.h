// SPDX-License-Identifier: Apache-2.0
// N operands over one shape, walked in the shape's order, line by line.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "npu/op.h"

namespace npu::host {

template <std::size_t N>
using Offsets = std::array<std::int64_t, N>;

// Dims from the outermost to the innermost; strides in the caller's unit.
template <std::size_t N>
struct Nest {
  int ndim = 0;
  std::int64_t numel = 1;
  std::int64_t sizes[NPU_MAX_DIMS + 1];
  Offsets<N> strides[NPU_MAX_DIMS + 1];

  // One more dim, inside all others. It joins the one before when it can.
  void add(std::int64_t size, const Offsets<N>& steps) noexcept {
    numel *= size;
    if (size == 1) {
      return;
    }
    if (ndim > 0 && joins(size, steps)) {
      sizes[ndim - 1] *= size;
    } else {
      sizes[ndim++] = size;
    }
    strides[ndim - 1] = steps;
  }

  // body(offsets, n) for runs of n elements of [begin, end): within a run,
  // offset k grows by step(k).
  template <class Body>
  void walk(std::int64_t begin, std::int64_t end, Body&& body) const {
    if (ndim == 0) {
      if (begin < end) {
        body(Offsets<N>{}, std::int64_t{1});
      }
      return;
    }
    std::int64_t at[NPU_MAX_DIMS + 1];
    Offsets<N> offsets{};
    std::int64_t rest = begin;
    for (int d = ndim - 1; d >= 0; --d) {
      at[d] = rest % sizes[d];
      rest /= sizes[d];
      move(offsets, d, at[d]);
    }
    for (std::int64_t i = begin; i < end;) {
      int d = ndim - 1;
      const std::int64_t n = std::min(sizes[d] - at[d], end - i);
      body(offsets, n);
      i += n;
      at[d] += n;
      move(offsets, d, n);
      while (d > 0 && at[d] == sizes[d]) {
        move(offsets, d, -sizes[d]);
        at[d] = 0;
        ++at[--d];
        move(offsets, d, 1);
      }
    }
  }

  std::int64_t step(std::size_t k) const noexcept {
    return ndim > 0 ? strides[ndim - 1][k] : 0;
  }

 private:
  bool joins(std::int64_t size, const Offsets<N>& steps) const noexcept {
    for (std::size_t k = 0; k < N; ++k) {
      if (strides[ndim - 1][k] != steps[k] * size) {
        return false;
      }
    }
    return true;
  }
  void move(Offsets<N>& offsets, int d, std::int64_t n) const noexcept {
    for (std::size_t k = 0; k < N; ++k) {
      offsets[k] += n * strides[d][k];
    }
  }
};

}  // namespace npu::host

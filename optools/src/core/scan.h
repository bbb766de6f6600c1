// SPDX-License-Identifier: Apache-2.0
// Reading a tensor's values on the host: statistics and hash, one pass each,
// no operator, any strides.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace optools {

// Strided, in host memory, of a dtype the scans know.
bool host_readable(const at::Tensor& t);
// A dtype that has infinities or NaN.
bool has_nonfinite(c10::ScalarType dtype);

// Is any element infinite or NaN? The tensor is host_readable().
bool any_nonfinite(const at::Tensor& t);

// Where the first of them is; empty for a tensor without dimensions.
std::vector<int64_t> first_nonfinite(const at::Tensor& t);

struct Statistics {
  int64_t count = 0;
  int64_t nan = 0;
  int64_t positive_inf = 0;
  int64_t negative_inf = 0;
  int64_t zero = 0;
  // Of the finite elements; a complex number counts as its two parts.
  double min = 0;
  double max = 0;
  double sum = 0;
  double squares = 0;
};
Statistics statistics(const at::Tensor& t);

// Two lanes of sum over i of mix(bits of element i, i) modulo 2^64: the same on
// any device and in any order, different when elements change places.
std::array<uint64_t, 2> content_hash(const at::Tensor& t);

}  // namespace optools

// SPDX-License-Identifier: Apache-2.0
// Operands of random programs: a layout, bytes, and the values as the kit reads
// them.
#pragma once

#include <cmath>
#include <limits>
#include <random>

#include "program_draw.h"

namespace npu::kit {

using Random = std::mt19937_64;

// odd: now and then one that is no usual number.
inline Value draw_value(npu_dtype dtype, Random& random, bool odd_ones) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double odd[] = {-0.0, kInf, -kInf, std::nan(""), 60000, 1e-7};
  if (dtype == NPU_BOOL) {
    return rounded(dtype, number_value(static_cast<double>(random() % 2)));
  }
  const double plain = static_cast<double>(random() % 2001) / 64 - 15;
  const bool is_whole = dtype == NPU_I32 || dtype == NPU_I64;
  return rounded(
      dtype,
      number_value(
          odd_ones && !is_whole && random() % 12 == 0 ? odd[random() % 6]
                                                      : plain));
}

// An operand of any layout, and its values in index order.
struct Held {
  View view;
  Bytes bytes;
  std::vector<Value> values;

  Held(
      npu_dtype dtype,
      const std::vector<std::int64_t>& sizes,
      bool plain,
      bool is_output,
      Random& random,
      bool odd_ones = true)
      : view{dtype, sizes, {}} {
    const std::uint64_t kind = plain ? 0 : random() % 3;
    if (kind != 0) {
      std::int64_t step = kind == 1 ? 1 : 2;
      view.strides.resize(sizes.size());
      for (std::size_t d = sizes.size(); d-- > 0;) {
        const bool expanded = !is_output && kind == 1 && random() % 2 == 0;
        view.strides[d] = expanded ? 0 : step;
        step *= sizes[d];
      }
    }
    const std::uint32_t element = npu_dtype_bytes(dtype);
    bytes.assign(static_cast<std::size_t>(view.extent()) * element, 0);
    for (std::size_t i = 0; i < bytes.size(); i += element) {
      store(dtype, draw_value(dtype, random, odd_ones), bytes.data() + i);
    }
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      values.push_back(read(bytes, i));
    }
  }
  Value read(const Bytes& from, std::int64_t i) const {
    const auto at = static_cast<std::size_t>(element_offset(view, i)) *
                    npu_dtype_bytes(view.dtype);
    return load(view.dtype, from.data() + at);
  }
};

inline bool equal(npu_dtype dtype, const Value& a, const Value& b) {
  if (std::isnan(number_of(a)) || std::isnan(number_of(b))) {
    return std::isnan(number_of(a)) && std::isnan(number_of(b));
  }
  std::uint8_t x[16] = {};
  std::uint8_t y[16] = {};
  store(dtype, a, x);
  store(dtype, b, y);
  return std::equal(x, x + 16, y) || number_of(a) == number_of(b);
}

}  // namespace npu::kit

// SPDX-License-Identifier: Apache-2.0
// Random cases: the values of operands, and attributes that no rule set.
#include <algorithm>
#include <cmath>

#include "draw.h"

namespace npu::kit {

void Draw::fill(Operand& operand) {
  if (operand.info->mode == NPU_MODE_OUT ||
      operand.info->mode == NPU_MODE_FILL ||
      operand.info->mode == NPU_MODE_COUNT || !operand.values.empty()) {
    return;
  }
  const auto at = static_cast<std::size_t>(operand.info - kind_.operands);
  const Range range = ranges_[at];
  const bool whole = !is_floating(operand.dtype) && !is_complex(operand.dtype);
  const bool is_bool = operand.dtype == NPU_BOOL;
  const bool is_unsigned =
      operand.dtype == NPU_U8 ||
      (operand.dtype >= NPU_U16 && operand.dtype <= NPU_U64);
  const std::int64_t n = operand.numel();
  std::vector<std::int64_t> deck;
  Bytes raw(16);
  for (std::int64_t i = 0; i < n; ++i) {
    Value value;
    if (whole) {
      std::int64_t low = is_bool || is_unsigned ? 0 : -6;
      std::int64_t high = is_bool ? 1 : 9;
      if (range.given) {
        low = static_cast<std::int64_t>(range.low);
        high = static_cast<std::int64_t>(range.high);
        if (is_unsigned) {
          low = std::max<std::int64_t>(low, 0);  // -1 would become 2^64 - 1
          high = std::max(high, low);
        }
      }
      value.is_integer = true;
      value.integer = between(low, high);
      if (range.distinct) {
        const std::int64_t row =
            operand.sizes.empty() ? 1 : operand.sizes.back();
        if (i % row == 0) {
          deck.clear();
          for (std::int64_t j = low; j <= high; ++j) {
            deck.push_back(j);
          }
          std::shuffle(deck.begin(), deck.end(), random_);
        }
        value.integer = deck[static_cast<std::size_t>(i % row)];
      }
      value.number = static_cast<double>(value.integer);
    } else {
      const double low = range.given ? range.low : -3;
      const double high = range.given ? range.high : 3;
      value.number = real(low, high);
      if (is_complex(operand.dtype)) {
        value.number = {value.number.real(), real(low, high)};
      }
      // The value that the dtype can hold: both machines start from it.
      store(operand.dtype, value, raw.data());
      value = load(operand.dtype, raw.data());
    }
    operand.values.push_back(value);
  }
  // An expanded dimension holds one value.
  const View view{
      .dtype = operand.dtype,
      .sizes = operand.sizes,
      .strides = operand.strides,
      .offset = operand.offset};
  std::vector<std::int64_t> first(
      static_cast<std::size_t>(std::max<std::int64_t>(view.extent(), 1)), -1);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t& seen =
        first[static_cast<std::size_t>(element_offset(view, i))];
    seen = seen < 0 ? i : seen;
    operand.values[static_cast<std::size_t>(i)] =
        operand.values[static_cast<std::size_t>(seen)];
  }
}

void Draw::draw_attrs() {
  for (std::uint32_t i = 0; i < kind_.n_attrs; ++i) {
    const npu_attr_info& info = kind_.attrs[i];
    // An attribute that came later reaches only kernels that know it.
    if (attrs_set_[i] || (info.cap != 0 && !has_cap(info.cap))) {
      continue;
    }
    const std::string type = info.type;
    if (info.limit != 0) {
      write_attr(info, 0, static_cast<double>(between(0, info.limit - 1)));
    } else if (type == "scalar") {
      write_attr(info, 0, std::round(real(1, 5)) / 2);
    } else if (type == "f64") {
      write_attr(info, 0, std::round(real(1, 8)) / 8);
    }
  }
}

}  // namespace npu::kit

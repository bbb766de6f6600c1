// SPDX-License-Identifier: Apache-2.0
// Random cases: strides and offsets of operands, inside what caps take.
#include <algorithm>

#include "draw.h"

namespace npu::kit {

void Draw::lay_out(Operand& operand, bool strided) {
  operand.strides = contiguous_strides(operand.sizes);
  operand.offset = 0;
  if (!strided || operand.host_scalar || operand.sizes.empty()) {
    return;
  }
  // Gaps between elements, an order of dimensions, an offset; expanded
  // dimensions for inputs.
  std::vector<std::size_t> order(operand.sizes.size());
  for (std::size_t d = 0; d < order.size(); ++d) {
    order[d] = d;
  }
  if (coin()) {
    std::shuffle(order.begin(), order.end(), random_);
  }
  std::int64_t step = between(1, 2);
  for (std::size_t d = order.size(); d-- > 0;) {
    operand.strides[order[d]] = step;
    step *= operand.sizes[order[d]];
    step += coin() ? 0 : between(0, 2);
  }
  if (operand.info->mode == NPU_MODE_IN && between(0, 3) == 0) {
    operand.strides[dim(operand.sizes)] = 0;
  }
  operand.offset = between(0, 3);
  if (caps_.min_alignment > npu_dtype_bytes(operand.dtype)) {
    operand.offset = 0;  // the host side aligns what is not
  }
}

// Layouts between contiguous and any strides, where the driver takes them.
void Draw::lay_out_limited(Operand& operand) {
  const bool out = operand.is_output();
  const std::size_t n = operand.sizes.size();
  if (operand.host_scalar || n < 2) {
    return;
  }
  std::vector<std::size_t> order(n);
  for (std::size_t d = 0; d < n; ++d) {
    order[d] = d;
  }
  std::vector<std::uint32_t> layouts;
  for (const std::uint32_t flag :
       {out ? NPU_CAP_DENSE_OUT : NPU_CAP_DENSE_IN,
        NPU_CAP_CHANNELS_LAST,
        NPU_CAP_INNER_STRIDE_1}) {
    if (has_cap(flag) &&
        (flag != NPU_CAP_CHANNELS_LAST || (n >= 3 && n <= 5))) {
      layouts.push_back(flag);
    }
  }
  if (layouts.empty()) {
    return;
  }
  std::int64_t pitch = 0;
  const std::uint32_t layout = layouts[random_() % layouts.size()];
  if (layout == NPU_CAP_CHANNELS_LAST) {
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  } else if (layout == NPU_CAP_INNER_STRIDE_1) {
    pitch = between(1, 3);
  } else {
    std::shuffle(order.begin(), order.end(), random_);
  }
  std::int64_t step = 1;
  for (std::size_t i = n; i-- > 0;) {
    operand.strides[order[i]] = step;
    step = step * operand.sizes[order[i]] + (i + 1 == n ? pitch : 0);
  }
}

}  // namespace npu::kit

// SPDX-License-Identifier: Apache-2.0
// Checks a call against a driver's declared capabilities before planning.
#pragma once

#include "driver/driver.h"

namespace npu {

npu_verdict declined(npu_reason reason, const char* detail = "") noexcept;

// The driver wants calls of this dtype and size (npu_op_caps.numel_limit).
inline bool wants_size(
    const npu_op_caps& caps, npu_dtype dtype, std::int64_t numel) noexcept {
  const std::uint8_t limit = caps.numel_limit[dtype % NPU_DTYPE_ROOM];
  return limit == 0 || (limit < 63 && numel <= (std::int64_t{1} << limit));
}

// NPU_VERDICT_YES, a verdict that asks for contiguous, cast or aligned
// operands, or NPU_VERDICT_NO with its reason.
npu_verdict verdict_of_caps(
    const npu_op_caps& caps, const npu_driver& driver, const npu_call& call);

// Every byte offset of the view from its first element fits in int32.
bool fits_index32(const npu_tensor& tensor) noexcept;
bool fits_index32(const npu_list& list) noexcept;

// The layouts of npu/op.h (NPU_CAP_STRIDED_IN and those after it). Dimensions
// of size 1 have any stride; an empty tensor has every layout.
bool is_contiguous(const npu_tensor& tensor) noexcept;
bool is_dense(const npu_tensor& tensor) noexcept;
bool is_channels_last(const npu_tensor& tensor) noexcept;
bool has_inner_stride_1(const npu_tensor& tensor) noexcept;
// A kernel with these capabilities takes the operand as it lies.
bool takes_layout(
    const npu_op_caps& caps, const npu_tensor& tensor, bool is_output) noexcept;

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// Operands of recorded frames, as chains of elementwise frames see them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/frame_copy.h"

namespace npu::graph {

// A place with its geometry, as frames give it: a tensor, or all entries of a
// list.
struct ProgramOperand {
  npu_tensor tensor{};  // of tensors: dtype, device, storage_bytes
  npu_dtype dtype = NPU_ABSENT;
  std::vector<std::int64_t> sizes;      // of lists: elements of each entry
  std::vector<std::int64_t> strides;    // none for lists
  std::vector<Ref> data;                // one, or one per entry
  std::vector<Ref> storage;             // of tensors
  std::vector<std::uint32_t> low_bits;  // of addresses, for plans
  bool contiguous = false;

  bool same_place(const ProgramOperand& other) const;
};

// Of a recorded frame; nothing for views that are read conjugated or negated,
// and for memory that is no buffer's.
std::optional<ProgramOperand> operand_of(
    const FrameCopy& frame, const npu_tensor& tensor);
std::optional<ProgramOperand> operand_of(
    const FrameCopy& frame, const npu_list& list);

// Do they share a buffer, other than entry by entry in the same places?
bool crosses(const ProgramOperand& a, const ProgramOperand& b);

// A number in host memory as a scalar; nothing for dtypes that no call computes
// in.
std::optional<npu_scalar> number_at(npu_dtype dtype, const void* data);

}  // namespace npu::graph

// SPDX-License-Identifier: Apache-2.0
// Kinds that work on lists: all tensors of a call are one long row of elements,
// cut for threads wherever it suits, across the borders of tensors.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/isa/lists.h"
#include "kernels/kernel.h"

namespace npu::host {

// -1: no loops for this dtype.
int list_type(npu_dtype dtype) noexcept;

// NPU_OK, or the error for lists that do not go together: another length, other
// numbers of elements, or a list without plain data. Null lists are absent.
npu_status check_lists(
    const npu_call& call, std::initializer_list<const npu_list*> lists);

std::int64_t total_elements(const npu_list& list) noexcept;

// The elements of entry i from `offset` on.
inline char* list_data(
    const npu_list* list, std::int64_t i, std::int64_t offset) noexcept {
  return list == nullptr
             ? nullptr
             : static_cast<char*>(list->data[i]) +
                   offset *
                       static_cast<std::int64_t>(element_bytes(list->dtype));
}

// One number of a list (or operand) of any float dtype.
double read_number(npu_dtype dtype, const void* data) noexcept;

// fn(entry, offset, count) for the stretches that make up elements
// [begin, end) of all tensors in a row.
template <class Fn>
void for_stretches(
    const npu_list& list, std::int64_t begin, std::int64_t end, Fn&& fn) {
  std::int64_t first = 0;
  for (std::uint32_t i = 0; i < list.n && first < end; ++i) {
    const std::int64_t last = first + list.numel[i];
    const std::int64_t from = std::max(begin, first);
    const std::int64_t to = std::min(end, last);
    if (from < to) {
      fn(static_cast<std::int64_t>(i), from - first, to - from);
    }
    first = last;
  }
}

// The same over all of the list, on many threads.
template <class Fn>
npu_status parallel_stretches(const npu_list& list, Fn&& fn) {
  return parallel(
      total_elements(list), kGrain, [&](std::int64_t begin, std::int64_t end) {
        for_stretches(list, begin, end, fn);
      });
}

// Caps every kind here shares; the dtype masks follow, lists after operands.
void list_caps(npu_op_caps& out) noexcept;
inline constexpr std::uint64_t kListDtypes =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) | NPU_DTYPE_BIT(NPU_F32) |
    NPU_DTYPE_BIT(NPU_F64);

// Rows of kListKernels.
npu_status multi_map_caps(std::uint32_t code, npu_op_caps& out);
npu_status multi_map_run(const npu_call& call);
npu_status multi_reduce_caps(std::uint32_t code, npu_op_caps& out);
npu_status multi_reduce_run(const npu_call& call);
npu_status optimizer_caps(std::uint32_t code, npu_op_caps& out);
npu_status optimizer_run(const npu_call& call);

}  // namespace npu::host

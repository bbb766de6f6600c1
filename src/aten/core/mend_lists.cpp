// SPDX-License-Identifier: Apache-2.0
// Copies of the entries of lists.
#include <algorithm>
#include <cstring>

#include "aten/core/mend.h"
#include "driver/registry.h"
#include "npu/validate.h"
#include "runtime/device.h"

namespace npu {
namespace {

// What kernels that take 16 bytes at a time like.
constexpr std::uint64_t kEntryAlignment = 16;
constexpr std::int64_t kOneApart = 1;

npu_tensor line(
    void* data, const std::int64_t* numel, npu_dtype dtype, npu_device device) {
  npu_tensor out{};
  out.data = out.storage = data;
  out.numel = *numel;
  out.storage_bytes =
      static_cast<std::uint64_t>(*numel) * npu_dtype_bytes(dtype);
  out.sizes = numel;
  out.strides = &kOneApart;
  out.dtype = dtype;
  out.ndim = 1;
  out.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  out.device = device;
  return out;
}

bool starts_on(const void* data, std::uint64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

}  // namespace

// One copy for all numbers, `spacing` bytes apart.
void Mender::upload_list(npu_list& list, std::uint64_t spacing) {
  std::vector<char> numbers(list.n * spacing);
  for (std::uint32_t i = 0; i < list.n; ++i) {
    std::memcpy(
        numbers.data() + i * spacing,
        list.data[i],
        npu_dtype_bytes(list.dtype));
  }
  auto* const to = static_cast<char*>(upload(numbers.data(), numbers.size()));
  std::vector<void*>& data = pointers_.emplace_back(list.n);
  for (std::uint32_t i = 0; i < list.n; ++i) {
    data[i] = to + i * spacing;
  }
  list.data = data.data();
  list.flags &= ~NPU_TENSOR_HOST_SCALAR;
}

// Entries that have another dtype or alignment, in one block of memory.
bool Mender::move_list(
    npu_list& list,
    npu_dtype dtype,
    std::uint64_t alignment,
    std::uint32_t mode) {
  const auto stays = [&](std::uint32_t i) {
    return dtype == list.dtype && starts_on(list.data[i], alignment);
  };
  const auto room = [&](std::uint32_t i) {
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(list.numel[i]) * npu_dtype_bytes(dtype);
    return (bytes + alignment - 1) / alignment * alignment;
  };
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < list.n; ++i) {
    bytes += stays(i) ? 0 : room(i);
  }
  auto* next = static_cast<char*>(allocate(bytes));
  std::vector<void*>& data =
      pointers_.emplace_back(list.data, list.data + list.n);
  const npu_device device = driver_device(device_);
  for (std::uint32_t i = 0; i < list.n; ++i) {
    if (stays(i)) {
      continue;
    }
    const npu_tensor entry =
        line(list.data[i], list.numel + i, list.dtype, device);
    const npu_tensor made = line(next, list.numel + i, dtype, device);
    if ((mode != NPU_MODE_IN && !can_copy(entry, made)) ||
        (mode != NPU_MODE_OUT && !copy(made, entry))) {
      return false;
    }
    if (mode != NPU_MODE_IN) {
      outputs_.push_back({entry, made});
    }
    data[i] = next;
    next += room(i);
  }
  list.data = data.data();
  list.dtype = dtype;
  return true;
}

bool Mender::mend_list(
    const npu_call& frame,
    npu_list& list,
    std::uint32_t mode,
    const npu_verdict& verdict) {
  if (list.n == 0 || list.dtype == NPU_ABSENT) {
    return true;
  }
  const npu_op_caps* const caps = active_driver().caps(frame.slot, frame.code);
  const std::uint64_t alignment = std::max<std::uint64_t>(
      {kEntryAlignment,
       verdict.alignment,
       caps != nullptr ? caps->min_alignment : 0});
  if ((list.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
    upload_list(list, alignment);
    return true;
  }
  // Entries are dense in one order as they come: a copy gains nothing.
  if (list.tensors != nullptr || verdict.answer == NPU_VERDICT_IF_CONTIGUOUS) {
    return false;
  }
  const bool casts = verdict.answer == NPU_VERDICT_IF_CAST;
  return move_list(
      list, casts ? verdict.cast_dtype : list.dtype, alignment, mode);
}

}  // namespace npu

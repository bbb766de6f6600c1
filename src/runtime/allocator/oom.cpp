// SPDX-License-Identifier: Apache-2.0
// The out-of-memory text; programs and torch_npu's tests match it.
#include "runtime/allocator/oom.h"

#include <cstdio>

#include "runtime/allocator/size_class.h"

namespace npu::memory {

std::string format_bytes(std::uint64_t bytes) {
  char text[48];
  const auto value = static_cast<double>(bytes);
  if (bytes <= kKiB) {
    std::snprintf(
        text,
        sizeof text,
        "%llu bytes",
        static_cast<unsigned long long>(bytes));
  } else if (bytes <= kMiB) {
    std::snprintf(text, sizeof text, "%.2f KiB", value / kKiB);
  } else if (bytes <= kKiB * kMiB) {
    std::snprintf(text, sizeof text, "%.2f MiB", value / kMiB);
  } else {
    std::snprintf(text, sizeof text, "%.2f GiB", value / (kKiB * kMiB));
  }
  return text;
}

OutOfMemory::OutOfMemory(const Numbers& numbers) : numbers_(numbers) {
  if (numbers.asked >= kAbsurd) {
    text_ = "NPU out of memory. Tried to allocate more than 1EB memory.";
    return;
  }
  // torch_npu's words, with the space that they lack before "If".
  text_ =
      "NPU out of memory. Tried to allocate " + format_bytes(numbers.asked) +
      " (NPU " + std::to_string(numbers.device) + "; " +
      format_bytes(numbers.capacity) + " total capacity; " +
      format_bytes(numbers.allocated) + " already allocated; " +
      format_bytes(numbers.active) + " current active; " +
      format_bytes(numbers.free) + " free; " + format_bytes(numbers.reserved) +
      " reserved in total by PyTorch). If reserved memory is >> allocated "
      "memory try setting max_split_size_mb to avoid fragmentation.";
}

}  // namespace npu::memory

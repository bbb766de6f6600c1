// SPDX-License-Identifier: Apache-2.0
// Operators that the CPU computed for this thread in the device's place.
// Compare before and after a call to see whether the driver computed it.
#pragma once

#include <cstdint>

#include "npu/status.h"

namespace npu {

struct CpuWork {
  std::uint64_t calls = 0;
  const char* last = "";  // overload; lives as long as the process
  npu_reason reason = NPU_REASON_NONE;
};

// Of the calling thread; one for all libraries of the plugin.
CpuWork& cpu_work_of_thread() noexcept;
void note_cpu_work(const char* overload, npu_reason reason) noexcept;

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// Operators that the CPU computed in the device's place, per thread.
#include "runtime/cpu_work.h"

namespace npu {

CpuWork& cpu_work_of_thread() noexcept {
  static thread_local CpuWork seen;
  return seen;
}

void note_cpu_work(const char* overload, npu_reason reason) noexcept {
  CpuWork& seen = cpu_work_of_thread();
  ++seen.calls;
  seen.last = overload;
  seen.reason = reason;
}

}  // namespace npu

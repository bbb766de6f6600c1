// SPDX-License-Identifier: Apache-2.0
// One call on the CPU, from npu arguments to npu results.
#pragma once

#include "aten/ladder/entry.h"

namespace npu::ladder {

// `cpu_key`: whose kernel to call (CPU, SparseCPU, ...).
void run_on_cpu(
    Entry& entry,
    c10::DispatchKey cpu_key,
    torch::jit::Stack* stack,
    npu_reason reason);

// Waits for the device's current stream: CPU kernels know no streams, so what
// was queued before must have happened. A forked child gets the driver's error.
void drain(c10::Device device);

// NPU_HOST_ACCESS_*: what host code may do with the device's memory.
std::uint32_t host_access(c10::Device device);

}  // namespace npu::ladder

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

}  // namespace npu::ladder

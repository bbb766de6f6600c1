// SPDX-License-Identifier: Apache-2.0
// One call on a twin, from npu arguments to npu results: rung 4, or rung 5
// where no twin reaches the device's memory.
#pragma once

#include "aten/ladder/check_policy.h"
#include "aten/twin/twin.h"

namespace npu::ladder {

// `npu_key`: the key of the npu device that the operator was called with, whose
// counterpart has the kernel (PrivateUse1 -> CPU, SparsePrivateUse1 ->
// SparseCPU).
void run_boxed(
    Entry& entry,
    c10::DispatchKey npu_key,
    torch::jit::Stack* stack,
    npu_reason reason);

// The device's own twin where it has a kernel for the operator, else the CPU's.
const twin::Reach& choose_reach(
    const Entry& entry, c10::DispatchKey npu_key, c10::Device device);

// Whether run_boxed() finds a kernel.
bool has_kernel(const Entry& entry, c10::DispatchKey npu_key);

// Whether this call would compute on copies (rung 5), although arguments of the
// operator could stay where they are.
bool needs_copies(const Entry& entry, const torch::jit::Stack& stack);

}  // namespace npu::ladder

// SPDX-License-Identifier: Apache-2.0
// What the user asks of algorithms, where calls are planned.
#pragma once

#include "driver/call.h"

namespace npu {

// call.plan(), with the call flagged as PyTorch's context says:
// torch.use_deterministic_algorithms, torch.backends.cudnn.benchmark. A kernel
// that is not deterministic is then PyTorch's error, never a reason to take
// another rung in silence; with warn_only it is a warning, and the kernel runs.
npu_verdict plan_call(Call& call, const Driver& driver, npu_device device);

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// The user's settings for algorithms, read where calls are planned.
#pragma once

#include <cstdint>

#include "driver/call.h"

namespace npu {

// call.plan(), with the call flagged as PyTorch's context says:
// torch.use_deterministic_algorithms, torch.backends.cudnn.benchmark, and how
// exact products have to be (math_mode). A kernel that is not deterministic is
// then PyTorch's error, never a reason to take another rung in silence; with
// warn_only it is a warning, and the kernel runs.
npu_verdict plan_call(Call& call, const Driver& driver, npu_device device);

// torch.npu.matmul.allow_hf32 and torch.npu.conv.allow_hf32.
void set_allow_hf32(bool matmul, bool conv) noexcept;

// All that plan_call reads, as bits: frames that were recorded under other
// settings must not run again.
std::uint64_t algorithm_settings();

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// NPU_HOST_DECLINE=<percent>,<seed>: imitates a driver that lacks things.
#pragma once

#include <cstdint>

#include "npu/op.h"

namespace npu::host {

// NPU_OK, or the error that names the variable and what is allowed.
npu_status read_decline();

// Takes abilities away from that share of kinds and codes, the same ones for
// the same seed. False: the driver has no such kernel. Copies, fills and random
// numbers stay: every other road leans on them.
bool keeps(std::uint32_t slot, std::uint32_t code, npu_op_caps& caps) noexcept;

}  // namespace npu::host

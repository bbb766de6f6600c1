// SPDX-License-Identifier: Apache-2.0
// NPU_HOST_DECLINE=<percent>,<seed>: imitates a driver without some kernels
// and capabilities.
#pragma once

#include <cstdint>

#include "npu/op.h"

namespace npu::host {

// NPU_OK, or the error that names the variable and what is allowed.
npu_status read_decline();

// Removes capabilities from that share of kinds and codes, the same ones for
// the same seed. False: the driver has no such kernel. Copies, fills and random
// numbers stay: the fallbacks are built on them.
bool apply_decline(
    std::uint32_t slot, std::uint32_t code, npu_op_caps& caps) noexcept;

}  // namespace npu::host

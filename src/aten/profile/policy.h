// SPDX-License-Identifier: Apache-2.0
// The user's policy for operators that leave the device.
#pragma once

namespace npu::profile {

enum class Policy { kWarn, kSilent, kError };

// NPU_FALLBACK (or TORCH_NPU_FALLBACK_CPU_DISABLE=1) until store_policy().
Policy policy();
// Only the value: ladder::set_policy() also has every operator judged again.
void store_policy(Policy policy);
// What an error names as the reason: "NPU_FALLBACK=error".
const char* forbidden_by();

// NPU_PROFILE_STRICT=1: what raises on the imitated device raises here.
bool strict();

}  // namespace npu::profile

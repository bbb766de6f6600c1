// SPDX-License-Identifier: Apache-2.0
// The dtypes of PyTorch and of the contract.
#pragma once

#include <c10/core/ScalarType.h>

#include "npu/op.h"

namespace npu {

// NPU_ABSENT for types the contract does not have.
npu_dtype to_npu_dtype(c10::ScalarType type) noexcept;

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// The dtypes of PyTorch and of the contract.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "npu/op.h"

namespace npu {

// NPU_ABSENT and nullopt for types the other side does not have.
npu_dtype to_npu_dtype(c10::ScalarType type) noexcept;
std::optional<c10::ScalarType> to_scalar_type(npu_dtype dtype) noexcept;

}  // namespace npu

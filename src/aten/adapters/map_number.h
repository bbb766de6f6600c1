// SPDX-License-Identifier: Apache-2.0
// Operands that are numbers on the host, in the compute type.
#pragma once

#include <ATen/core/TensorBase.h>

#include "npu/op.h"

namespace npu {

struct HostNumber {
  alignas(16) unsigned char bytes[16];
};

// The number of a 0-dim CPU tensor, cast as PyTorch casts elements. False for
// types without arithmetic.
bool store_number(
    HostNumber& to, const at::TensorBase& tensor, npu_dtype dtype);

// The dtype a number is handed over in: halves are computed in float, and a
// number rounded to half first would lose what PyTorch's CPU keeps.
npu_dtype number_dtype(const npu_op_caps& caps, npu_dtype compute);

npu_tensor host_operand(HostNumber& number, npu_dtype dtype);

}  // namespace npu

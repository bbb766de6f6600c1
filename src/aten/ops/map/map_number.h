// SPDX-License-Identifier: Apache-2.0
// Operands that are numbers on the host, in the compute type.
#pragma once

#include <ATen/core/TensorBase.h>

#include "aten/ladder/native.h"
#include "npu/op.h"

namespace npu {

struct HostNumber {
  alignas(16) unsigned char bytes[16];
};

// The number of a 0-dim CPU tensor, cast as PyTorch casts elements. False for
// types without arithmetic.
bool store_number(
    HostNumber& to, const at::TensorBase& tensor, npu_dtype dtype);

// The dtype a number is handed over in, as input `place` of its kind. PyTorch's
// CPU rounds it to the compute dtype, but a half times a number, or divided by
// one, takes all its digits.
npu_dtype number_dtype(
    const NativeSite& site,
    npu_dtype compute,
    std::uint32_t place,
    const at::TensorBase& number);

// The driver takes fixed dtypes side by side: with a number that does not fit
// the compute dtype, all operands are cast to the number's.
bool needs_wider_compute(
    const NativeSite& site, npu_dtype compute, npu_dtype number);

npu_tensor host_operand(HostNumber& number, npu_dtype dtype);

}  // namespace npu

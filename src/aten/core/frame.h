// SPDX-License-Identifier: Apache-2.0
// Between PyTorch's tensors and the driver's call frame.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <initializer_list>
#include <optional>

#include "driver/call.h"
#include "runtime/dtype.h"

// Attributes of a kind are initialised by name; those not named are 0.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace npu {

// An operand over `tensor`, flags included. Sizes and strides are referenced:
// `tensor` outlives the call. The dtype is NPU_ABSENT for types the contract
// does not have (then no driver takes the call).
npu_tensor to_operand(const at::Tensor& tensor);

// The number as the contract carries it; exact where `i` or `re` can hold it.
npu_scalar to_npu_scalar(const c10::Scalar& value);

// Throws unless every defined tensor is an npu tensor of one device, with
// torch_npu's text; returns that device.
c10::DeviceIndex check_same_device(
    const char* op, std::initializer_list<const at::Tensor*> tensors);

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// Filling npu tensors with one value.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace npu {

// Every element of `self` becomes `value`, as Tensor.fill_ converts it.
void fill(const at::Tensor& self, const c10::Scalar& value);

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// Numbers in a wider dtype. PyTorch's own conversion goes element by element.
#pragma once

#include <ATen/core/Tensor.h>

namespace optools {

void widen(const float* from, double* to, int64_t count);

// The same values, sizes and strides in `dtype`: of a host tensor that leaves
// no gaps. Runs an operator only for pairs of dtypes it does not know: be
// Quiet.
at::Tensor widened_copy(const at::Tensor& t, c10::ScalarType dtype);

}  // namespace optools

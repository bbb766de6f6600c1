// SPDX-License-Identifier: Apache-2.0
// Host tensors in memory that is used again: fresh pages cost more than what
// is written to them.
#pragma once

#include <ATen/core/Tensor.h>

namespace optools {

// Uninitialised. Sizes and strides describe dense memory.
at::Tensor pooled_tensor(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype);

// Gives back what is not in use.
void release_pool();

}  // namespace optools

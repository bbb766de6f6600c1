// SPDX-License-Identifier: Apache-2.0
// Copies between any two tensors of which at least one is an npu tensor.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu {

// dst takes src's values, as Tensor.copy_ does: broadcast, cast, any strides,
// any devices. Throws CPU's errors for shapes that do not fit and for overlap.
// non_blocking: copies from and to pinned memory return before they are done.
void copy(const at::Tensor& dst, const at::Tensor& src, bool non_blocking);

// Both on one device; no conj or neg bit on dst.
void copy_on_device(const at::Tensor& dst, const at::Tensor& src);

// On different npu devices, ordered after both devices' current streams.
void copy_between_devices(const at::Tensor& dst, const at::Tensor& src);

}  // namespace npu

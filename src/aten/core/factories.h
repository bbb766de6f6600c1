// SPDX-License-Identifier: Apache-2.0
// New npu tensors without going through the dispatcher.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace npu {

// Uninitialised, contiguous unless a memory format says otherwise.
at::Tensor make_empty(
    at::IntArrayRef sizes,
    c10::ScalarType dtype,
    c10::DeviceIndex device,
    std::optional<c10::MemoryFormat> format = std::nullopt);
// The same for sizes that were checked; `bytes` is what they need.
at::Tensor make_contiguous(
    at::IntArrayRef sizes,
    std::size_t bytes,
    c10::ScalarType dtype,
    c10::DeviceIndex device);
at::Tensor make_empty_strided(
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    c10::ScalarType dtype,
    c10::DeviceIndex device);

// Same sizes and order of dimensions, without gaps: as empty_like.
at::Tensor make_empty_like(const at::Tensor& like, c10::ScalarType dtype);

}  // namespace npu

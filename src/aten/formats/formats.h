// SPDX-License-Identifier: Apache-2.0
// Storage formats as torch_npu shows them: a tag on the storage, and its padded
// size. Values lie as PyTorch lays them, whatever the tag: kernels ignore it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace npu {

// A private format is that of the tensor it was given to; other views of its
// storage have the base format.
std::int64_t format_of(const at::Tensor& tensor);

// Elements of the physical storage, padding included.
std::int64_t storage_size_of(const at::Tensor& tensor);

// `tensor` itself when it has the format, or when both formats are base ones
// (the storage is tagged anew); else a contiguous copy.
at::Tensor cast_format(const at::Tensor& tensor, std::int64_t format);

// Whether cast_format gives `tensor` back.
bool keeps_storage(const at::Tensor& tensor, std::int64_t format);

// Off: private formats become their base format, with a warning.
void set_allow_internal_format(bool allow) noexcept;
bool allow_internal_format() noexcept;

// Uninitialised but for the padding, which is zero.
at::Tensor make_with_format(
    at::IntArrayRef sizes,
    c10::ScalarType dtype,
    c10::DeviceIndex device,
    std::int64_t format,
    bool allow_internal = allow_internal_format());

// Tags a tensor that comes from a file, where the storage is that large.
void restore_format(const at::Tensor& tensor, std::int64_t format);

}  // namespace npu

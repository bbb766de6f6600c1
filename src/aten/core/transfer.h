// SPDX-License-Identifier: Apache-2.0
// Parts of copy(): between host memory and npu tensors.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace npu {

// Queues on `stream`: every element of `dst` takes the value at the same place
// of `host`, which is laid out as dst's storage from its first byte on. Bytes
// between the elements are not touched, so that other streams may write them.
// Nested tensors are written whole. Pinned host memory must not change before
// the stream has passed; other memory may when the call returns.
void upload_elements(
    const c10::TensorImpl& dst, const void* host, c10::Stream stream);

// dst on the device, src on the host, and the other way round; no conj or neg
// bit on dst. non_blocking: returns without waiting for the stream when the
// host tensor is pinned, whatever the dtypes and strides.
void copy_from_host(
    const at::Tensor& dst, const at::Tensor& src, bool non_blocking);
void copy_to_host(
    const at::Tensor& dst, const at::Tensor& src, bool non_blocking);

// Same dtype, no conj or neg bit on src.
bool same_meaning(const at::Tensor& dst, const at::Tensor& src);
// The bytes of src, in the order they lie, are the bytes of dst.
bool same_bytes(const at::Tensor& dst, const at::Tensor& src);
// Checks shapes and overlap with CPU's own errors.
at::TensorIterator make_copy_iterator(
    const at::Tensor& dst, const at::Tensor& src);

// Both on one device, equal sizes, no overlap: queues the driver's own copy
// and answers true, or false when the driver has none for these tensors.
bool copy_with_kernel(const at::Tensor& dst, const at::Tensor& src);

}  // namespace npu

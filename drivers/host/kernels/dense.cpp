// SPDX-License-Identifier: Apache-2.0
// Contiguous views over memory of our own.
#include "kernels/dense.h"

namespace npu::host {

DenseView::DenseView(
    const npu_tensor& like, npu_dtype dtype, void* data) noexcept
    : tensor() {
  std::int64_t stride = 1;
  for (int d = like.ndim - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= like.sizes[d];
  }
  tensor.data = tensor.storage = data;
  tensor.numel = like.numel;
  tensor.storage_bytes =
      static_cast<std::uint64_t>(like.numel) * element_bytes(dtype);
  tensor.sizes = like.sizes;
  tensor.strides = strides;
  tensor.dtype = dtype;
  tensor.ndim = like.ndim;
  tensor.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  tensor.device = like.device;
}

}  // namespace npu::host

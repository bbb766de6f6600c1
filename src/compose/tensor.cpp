// SPDX-License-Identifier: Apache-2.0
// Views of device memory.
#include "compose/tensor.h"

#include <algorithm>
#include <cassert>

#include "npu/validate.h"

namespace npu::compose {
namespace {

std::size_t at(int dim) {
  return static_cast<std::size_t>(dim);
}

std::int64_t product(const Sizes& sizes) {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) {
    n *= size;
  }
  return n;
}

}  // namespace

Tensor::Tensor(const npu_tensor& operand)
    : view_(operand),
      sizes_(operand.sizes, operand.sizes + operand.ndim),
      strides_(operand.strides, operand.strides + operand.ndim) {}

Tensor::Tensor(npu_dtype dtype, Sizes sizes, void* data, npu_device device)
    : sizes_(std::move(sizes)), strides_(sizes_.size()) {
  std::int64_t stride = 1;
  for (std::size_t d = sizes_.size(); d-- > 0;) {
    strides_[d] = stride;
    stride *= sizes_[d];
  }
  view_.data = view_.storage = data;
  view_.storage_bytes =
      static_cast<std::uint64_t>(numel()) * npu_dtype_bytes(dtype);
  view_.dtype = dtype;
  view_.device = device;
}

std::int64_t Tensor::numel() const noexcept {
  return product(sizes_);
}

Tensor Tensor::slice(int dim, std::int64_t first, std::int64_t n) const {
  Tensor out = *this;
  out.view_.data = static_cast<char*>(view_.data) +
                   first * strides_[at(dim)] *
                       static_cast<std::int64_t>(npu_dtype_bytes(view_.dtype));
  out.sizes_[at(dim)] = n;
  return out;
}

Tensor Tensor::unsqueeze(int dim) const {
  Tensor out = *this;
  out.sizes_.insert(out.sizes_.begin() + dim, 1);
  out.strides_.insert(out.strides_.begin() + dim, 0);
  return out;
}

Tensor Tensor::expand(const Sizes& sizes) const {
  Tensor out = *this;
  const std::size_t more = sizes.size() - sizes_.size();
  out.sizes_ = sizes;
  out.strides_.insert(out.strides_.begin(), more, 0);
  for (std::size_t d = more; d < sizes.size(); ++d) {
    if (sizes_[d - more] != sizes[d]) {
      out.strides_[d] = 0;
    }
  }
  return out;
}

Tensor Tensor::reshape(Sizes sizes) const {
  assert(is_contiguous() && product(sizes) == numel());
  Tensor out(view_.dtype, std::move(sizes), view_.data, view_.device);
  out.view_.storage = view_.storage;
  out.view_.storage_bytes = view_.storage_bytes;
  return out;
}

bool Tensor::is_contiguous() const noexcept {
  std::int64_t expected = 1;
  for (std::size_t d = sizes_.size(); d-- > 0;) {
    if (sizes_[d] != 1 && strides_[d] != expected) {
      return false;
    }
    expected *= sizes_[d];
  }
  return true;
}

npu_tensor Tensor::operand() const noexcept {
  return operand(sizes_, strides_);
}

npu_tensor Tensor::operand(
    const Sizes& sizes, const Sizes& strides) const noexcept {
  npu_tensor out = view_;
  if (out.dtype != NPU_ABSENT) {
    out.sizes = sizes.data();
    out.strides = strides.data();
    out.ndim = static_cast<std::uint16_t>(sizes.size());
    out.numel = product(sizes);
    out.flags &= ~(NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE);
  }
  return out;
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes out = a.size() > b.size() ? a : b;
  const Sizes& other = a.size() > b.size() ? b : a;
  const std::size_t more = out.size() - other.size();
  for (std::size_t d = more; d < out.size(); ++d) {
    const std::int64_t size = other[d - more];
    out[d] = out[d] == 1 ? size : out[d];  // 0 stays 0 beside 1
  }
  return out;
}

}  // namespace npu::compose

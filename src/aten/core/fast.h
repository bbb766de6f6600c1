// SPDX-License-Identifier: Apache-2.0
// Helpers of the paths around PyTorch's meta functions: small calls of plain
// tensors, whose frames need no iterator, no plan and no mending.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstdint>
#include <limits>

#include "aten/core/site.h"
#include "npu/validate.h"

namespace npu {

inline constexpr std::uint64_t kFastDtypes =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) | NPU_DTYPE_BIT(NPU_F32) |
    NPU_DTYPE_BIT(NPU_F64);
// More would not fit 32 bits of bytes, whatever the dtype.
inline constexpr std::int64_t kMostFastElements =
    std::numeric_limits<std::int32_t>::max() / 8;
inline constexpr std::int64_t kUnitStride = 1;

inline bool is_plain_tensor(const c10::TensorImpl& impl) {
  constexpr c10::DispatchKeySet kOthers =
      c10::DispatchKeySet(c10::DispatchKey::Conjugate) |
      c10::DispatchKeySet(c10::DispatchKey::Negative) |
      c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return !impl.key_set().has_any(kOthers) && impl.is_contiguous();
}

// A contiguous tensor as one dimension of `*numel` elements.
inline void set_line(
    npu_tensor& out,
    const c10::TensorImpl& impl,
    npu_dtype dtype,
    npu_device device,
    const std::int64_t* numel) {
  // Field by field: clearing it all first costs more than the rest.
  const c10::Storage& storage = impl.unsafe_storage();
  out.storage = storage.mutable_data();  // unshares a lazy clone
  out.data = static_cast<char*>(out.storage) +
             impl.storage_offset() * npu_dtype_bytes(dtype);
  out.storage_bytes = storage.nbytes();
  out.numel = impl.numel();
  out.sizes = numel;
  out.strides = &kUnitStride;
  out.dtype = dtype;
  out.ndim = 1;
  out.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  out.device = device;
  out.format = 0;
  out.alias_of = 0;
  for (std::uint64_t& field : out.reserved) {
    field = 0;
  }
}

inline bool is_aligned(const npu_op_caps& caps, const npu_tensor& tensor) {
  return caps.min_alignment <= 1 ||
         reinterpret_cast<std::uintptr_t>(tensor.data) % caps.min_alignment ==
             0;
}

}  // namespace npu

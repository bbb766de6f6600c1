// SPDX-License-Identifier: Apache-2.0
// Small things the adapters written by hand share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "aten/core/frame.h"
#include "aten/ops/map/map.h"

namespace npu {

using OptTensor = std::optional<at::Tensor>;

// NativeSite lets numbers on the host through, for kinds that take them.
template <class... Tensors>
bool on_device(const Tensors&... tensors) {
  return ((!tensors.defined() || tensors.is_privateuseone()) && ...);
}

// An optional operand: null when the tensor is not defined.
class MaybeOperand {
 public:
  explicit MaybeOperand(const at::Tensor& tensor) : given_(tensor.defined()) {
    if (given_) {
      operand_ = to_operand(tensor);
    }
  }
  operator const npu_tensor*() const noexcept {
    return given_ ? &operand_ : nullptr;
  }

 private:
  bool given_;
  npu_tensor operand_{};
};

// Whether to fill a frame: the driver wants it (`why` is NPU_REASON_NONE) and
// the arguments are of the sort the frame can say. Where they are not, `why`
// says so: the CPU rung takes the call, with PyTorch's errors.
inline bool takes(bool fits, npu_reason& why) {
  if (why == NPU_REASON_NONE && !fits) {
    why = NPU_REASON_DTYPE;
  }
  return why == NPU_REASON_NONE;
}

// float16, bfloat16, float32 or float64, and not empty: what kernels of most
// kinds take.
// Everything else is left to the CPU rung, which has PyTorch's errors.
inline bool is_float(const at::Tensor& tensor) {
  const c10::ScalarType type = tensor.scalar_type();
  return tensor.numel() != 0 && (type == at::kFloat || type == at::kDouble ||
                                 type == at::kHalf || type == at::kBFloat16);
}

inline bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf ||
         tensor.scalar_type() == at::kBFloat16;
}

// Undefined, or a vector of `size` that goes with `input`: its dtype, or
// float32 beside a half type.
inline bool is_parameter(
    const at::Tensor& tensor, const at::Tensor& input, at::IntArrayRef sizes) {
  if (!tensor.defined()) {
    return true;
  }
  const bool wide = is_half(input) && tensor.scalar_type() == at::kFloat;
  return tensor.sizes() == sizes &&
         (wide || tensor.scalar_type() == input.scalar_type());
}

// What PyTorch's CPU saves statistics in: float32 when a half type meets
// float32 parameters, else the input's type.
inline c10::ScalarType statistics_type(
    const at::Tensor& input, const at::Tensor& a, const at::Tensor& b) {
  const auto is_wide = [](const at::Tensor& t) {
    return t.defined() && t.scalar_type() == at::kFloat;
  };
  return is_half(input) && (is_wide(a) || is_wide(b)) ? at::kFloat
                                                      : input.scalar_type();
}

inline bool is_index(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt;
}

// Sizes of a traced program need not be numbers yet.
inline bool is_symbolic(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

}  // namespace npu

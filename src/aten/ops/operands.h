// SPDX-License-Identifier: Apache-2.0
// Operands of a call, and what adapters ask of tensors before they fill one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <initializer_list>
#include <optional>

#include "aten/core/frame.h"
#include "npu/kinds.h"

namespace npu {

// ---- operands ----

using OptTensor = std::optional<at::Tensor>;

inline const at::Tensor& or_undefined(const OptTensor& tensor) {
  static const at::Tensor undefined;
  return tensor ? *tensor : undefined;
}

// An operand that may be absent, as builders take it: null when the tensor is
// not defined.
class MaybeOperand {
 public:
  explicit MaybeOperand(const at::Tensor& tensor) : given_(tensor.defined()) {
    if (given_) {
      operand_ = to_operand(tensor);
    }
  }
  explicit MaybeOperand(const OptTensor& tensor)
      : MaybeOperand(or_undefined(tensor)) {}
  operator const npu_tensor*() const noexcept {
    return given_ ? &operand_ : nullptr;
  }

 private:
  bool given_;
  npu_tensor operand_{};
};

// An input that is the output itself says so.
npu_tensor input_operand(const at::Tensor& input, const at::Tensor& out);

// A number as an operand, in the dtype of `like` and converted as CPU does.
class NumberOperand {
 public:
  NumberOperand(const c10::Scalar& value, const at::Tensor& like);
  const npu_tensor& operand() const {
    return operand_;
  }

 private:
  at::Tensor value_;
  npu_tensor operand_;
};

// ---- tensors ----

// NativeSite lets numbers on the host through, for kinds that take them.
template <class... Tensors>
bool on_device(const Tensors&... tensors) {
  return ((!tensors.defined() || tensors.is_privateuseone()) && ...);
}

inline bool same_dtype(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type();
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

inline bool is_index(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt;
}

// Sizes of a traced program need not be numbers yet.
inline bool is_symbolic(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Undefined, or of these sizes.
inline bool has_sizes(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return !tensor.defined() || tensor.sizes() == sizes;
}

// Undefined, or a parameter that goes with `input`: of its dtype, or float32
// beside a half type.
inline bool has_parameter_dtype(
    const at::Tensor& tensor, const at::Tensor& input) {
  return !tensor.defined() || same_dtype(tensor, input) ||
         (is_half(input) && tensor.scalar_type() == at::kFloat);
}

inline bool is_parameter(
    const at::Tensor& tensor, const at::Tensor& input, at::IntArrayRef sizes) {
  return has_sizes(tensor, sizes) && has_parameter_dtype(tensor, input);
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

// ---- reasons ----

// For arguments that a frame cannot say, or that PyTorch refuses: the CPU rung
// takes the call, with PyTorch's errors.
inline constexpr npu_reason kLeaveToCpu = NPU_REASON_ARGUMENTS;

// The reason of the first condition that does not hold. All are evaluated:
// none may depend on one before it.
struct Condition {
  bool holds;
  npu_reason otherwise;
};
inline npu_reason first_failed(std::initializer_list<Condition> conditions) {
  for (const Condition& condition : conditions) {
    if (!condition.holds) {
      return condition.otherwise;
    }
  }
  return NPU_REASON_NONE;
}

// Whether to fill a frame: the driver wants it (`why` is NPU_REASON_NONE) and
// the arguments are of the sort the frame can say.
inline bool takes(bool fits, npu_reason& why) {
  if (why == NPU_REASON_NONE && !fits) {
    why = kLeaveToCpu;
  }
  return why == NPU_REASON_NONE;
}

}  // namespace npu

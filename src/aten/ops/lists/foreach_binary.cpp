// SPDX-License-Identifier: Apache-2.0
// torch._foreach_* with scalars or a second and third list.
#include <ATen/ops/_foreach_add_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_addcdiv_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_addcmul_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_clamp_max_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_clamp_min_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_div_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_lerp_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_maximum_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_minimum_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_mul_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_pow_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sub_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include "aten/ops/lists/foreach.h"
#include "npu/kinds.h"

namespace npu::foreach {
namespace {

namespace loops = at::compositeexplicitautograd;
using at::Scalar;
using at::Tensor;

// Overloads by what follows the first list. In-place ones end in "_", as
// PyTorch's do; `loop` is PyTorch's own, tensor by tensor.

// (Scalar), (ScalarList)
template <const Op& op, class Value, Results (*loop)(List, Value)>
Results scalar(List self, Value value) {
  auto results = map_new(op, self, {}, {}, Factor(value));
  return results ? std::move(*results) : loop(self, value);
}
template <const Op& op, class Value, void (*loop)(List, Value)>
void scalar_(List self, Value value) {
  if (!map_into(op, self, {}, {}, Factor(value))) {
    loop(self, value);
  }
}

// (List)
template <const Op& op, Results (*loop)(List, List)>
Results list(List self, List other) {
  auto results =
      other.empty() ? std::nullopt : map_new(op, self, other, {}, {});
  return results ? std::move(*results) : loop(self, other);
}
template <const Op& op, void (*loop)(List, List)>
void list_(List self, List other) {
  if (other.empty() || !map_into(op, self, other, {}, {})) {
    loop(self, other);
  }
}

// (List, alpha), (List, weight), (List, weights)
template <const Op& op, class Value, Results (*loop)(List, List, Value)>
Results list_and(List self, List other, Value value) {
  auto results = other.empty() ? std::nullopt
                               : map_new(op, self, other, {}, Factor(value));
  return results ? std::move(*results) : loop(self, other, value);
}
template <const Op& op, class Value, void (*loop)(List, List, Value)>
void list_and_(List self, List other, Value value) {
  if (other.empty() || !map_into(op, self, other, {}, Factor(value))) {
    loop(self, other, value);
  }
}

// (List, List)
template <const Op& op, Results (*loop)(List, List, List)>
Results lists(List self, List y, List z) {
  auto results =
      y.empty() || z.empty() ? std::nullopt : map_new(op, self, y, z, {});
  return results ? std::move(*results) : loop(self, y, z);
}
template <const Op& op, void (*loop)(List, List, List)>
void lists_(List self, List y, List z) {
  if (y.empty() || z.empty() || !map_into(op, self, y, z, {})) {
    loop(self, y, z);
  }
}

// (List, List, Scalar), (List, List, ScalarList)
template <const Op& op, class Value, Results (*loop)(List, List, List, Value)>
Results lists_and(List self, List y, List z, Value value) {
  auto results = y.empty() || z.empty()
                     ? std::nullopt
                     : map_new(op, self, y, z, Factor(value));
  return results ? std::move(*results) : loop(self, y, z, value);
}
template <const Op& op, class Value, void (*loop)(List, List, List, Value)>
void lists_and_(List self, List y, List z, Value value) {
  if (y.empty() || z.empty() || !map_into(op, self, y, z, Factor(value))) {
    loop(self, y, z, value);
  }
}

// (List, List, Tensor): the numbers of a ScalarList in a CPU tensor.
std::optional<std::vector<Scalar>> numbers(const Tensor& scalars, List self) {
  const bool fits = scalars.device().is_cpu() && scalars.dim() == 1 &&
                    scalars.is_contiguous() &&
                    scalars.numel() == static_cast<std::int64_t>(self.size()) &&
                    at::isFloatingType(scalars.scalar_type());
  if (!fits) {
    return std::nullopt;
  }
  const Tensor wide = scalars.to(at::kDouble);
  const double* first = wide.const_data_ptr<double>();
  return std::vector<Scalar>(first, first + wide.numel());
}
template <const Op& op, Results (*loop)(List, List, List, const Tensor&)>
Results lists_and_tensor(List self, List y, List z, const Tensor& scalars) {
  const auto values = numbers(scalars, self);
  auto results = values && !y.empty() && !z.empty()
                     ? map_new(op, self, y, z, Factor(Scalars(*values)))
                     : std::nullopt;
  return results ? std::move(*results) : loop(self, y, z, scalars);
}
template <const Op& op, void (*loop)(List, List, List, const Tensor&)>
void lists_and_tensor_(List self, List y, List z, const Tensor& scalars) {
  const auto values = numbers(scalars, self);
  if (!values || y.empty() || z.empty() ||
      !map_into(op, self, y, z, Factor(Scalars(*values)))) {
    loop(self, y, z, scalars);
  }
}

// (Tensor): 0-dim, on the device or on the host.
class TensorFactor {
 public:
  explicit TensorFactor(const Tensor& tensor) : tensor_(tensor) {
    if (tensor.device().is_cpu() && tensor.dim() == 0) {
      number_ = tensor.item();
    }
  }
  // Among 0-dim tensors the wider dtype wins: no result has another dtype than
  // its input.
  bool keeps_dtype(List self) const {
    for (const Tensor& tensor : self) {
      if (tensor.dim() == 0 && tensor.scalar_type() != tensor_.scalar_type()) {
        return false;
      }
    }
    return true;
  }
  Factor get() const {
    return number_ ? Factor(*number_) : Factor(tensor_);
  }

 private:
  const Tensor& tensor_;
  std::optional<Scalar> number_;
};

std::optional<Results> map_new_by(
    const Op& op, List self, const Tensor& other) {
  const TensorFactor factor(other);
  return factor.keeps_dtype(self) ? map_new(op, self, {}, {}, factor.get())
                                  : std::nullopt;
}
bool map_into_by(const Op& op, List self, const Tensor& other) {
  const TensorFactor factor(other);
  return factor.keeps_dtype(self) && map_into(op, self, {}, {}, factor.get());
}

template <const Op& op, Results (*loop)(List, const Tensor&)>
Results tensor(List self, const Tensor& other) {
  auto results = map_new_by(op, self, other);
  return results ? std::move(*results) : loop(self, other);
}
template <const Op& op, void (*loop)(List, const Tensor&)>
void tensor_(List self, const Tensor& other) {
  if (!map_into_by(op, self, other)) {
    loop(self, other);
  }
}

// (Tensor, alpha): only add has it.
template <const Op& op, Results (*loop)(List, const Tensor&, const Scalar&)>
Results tensor_and(List self, const Tensor& other, const Scalar& alpha) {
  auto results = alpha.equal(1) ? map_new_by(op, self, other) : std::nullopt;
  return results ? std::move(*results) : loop(self, other, alpha);
}
template <const Op& op, void (*loop)(List, const Tensor&, const Scalar&)>
void tensor_and_(List self, const Tensor& other, const Scalar& alpha) {
  if (!alpha.equal(1) || !map_into_by(op, self, other)) {
    loop(self, other, alpha);
  }
}

#define NPU_BINARY_OP(name, binary_code) \
  constexpr Op k_##name{                 \
      "aten::_foreach_" #name,           \
      NPU_MULTI_MAP_BINARY,              \
      NPU_BINARY_##binary_code};
NPU_BINARY_OP(add, ADD)
NPU_BINARY_OP(sub, SUB)
NPU_BINARY_OP(mul, MUL)
NPU_BINARY_OP(div, DIV)
NPU_BINARY_OP(maximum, MAXIMUM)
NPU_BINARY_OP(minimum, MINIMUM)
NPU_BINARY_OP(clamp_min, MAXIMUM)
NPU_BINARY_OP(clamp_max, MINIMUM)
NPU_BINARY_OP(lerp, LERP)
NPU_BINARY_OP(pow, POW)
#undef NPU_BINARY_OP

constexpr Op k_pow_scalar{
    "aten::_foreach_pow", NPU_MULTI_MAP_UNARY_WITH, NPU_UNARY_WITH_POW};
constexpr Op k_scalar_pow{
    "aten::_foreach_pow", NPU_MULTI_MAP_UNARY_WITH, NPU_UNARY_WITH_RPOW};
constexpr Op k_addcmul{
    "aten::_foreach_addcmul", NPU_MULTI_MAP_TERNARY, NPU_TERNARY_ADDCMUL};
constexpr Op k_addcdiv{
    "aten::_foreach_addcdiv", NPU_MULTI_MAP_TERNARY, NPU_TERNARY_ADDCDIV};
constexpr Op k_lerp_lists{
    "aten::_foreach_lerp", NPU_MULTI_MAP_TERNARY, NPU_TERNARY_LERP};

Results scalar_pow(const Scalar& self, List exponent) {
  auto results = map_new(k_scalar_pow, exponent, {}, {}, Factor(self));
  return results ? std::move(*results) : loops::_foreach_pow(self, exponent);
}

}  // namespace

// Function pointers: one wrapper per signature is compiled, not one per name.
#define NPU_BOTH(name, overload, function, ...)         \
  m.impl(                                               \
      "_foreach_" #name "." overload,                   \
      &function<__VA_ARGS__, &loops::_foreach_##name>); \
  m.impl(                                               \
      "_foreach_" #name "_." overload,                  \
      &function##_<__VA_ARGS__, &loops::_foreach_##name##_>);

#define NPU_SCALARS(name, op)                         \
  NPU_BOTH(name, "Scalar", scalar, op, const Scalar&) \
  NPU_BOTH(name, "ScalarList", scalar, op, Scalars)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NPU_SCALARS(add, k_add)
  NPU_SCALARS(sub, k_sub)
  NPU_SCALARS(mul, k_mul)
  NPU_SCALARS(div, k_div)
  NPU_SCALARS(maximum, k_maximum)
  NPU_SCALARS(minimum, k_minimum)
  NPU_SCALARS(clamp_min, k_clamp_min)
  NPU_SCALARS(clamp_max, k_clamp_max)
  NPU_SCALARS(pow, k_pow_scalar)
  NPU_BOTH(add, "List", list_and, k_add, const Scalar&)
  NPU_BOTH(sub, "List", list_and, k_sub, const Scalar&)
  NPU_BOTH(mul, "List", list, k_mul)
  NPU_BOTH(div, "List", list, k_div)
  NPU_BOTH(maximum, "List", list, k_maximum)
  NPU_BOTH(minimum, "List", list, k_minimum)
  NPU_BOTH(clamp_min, "List", list, k_clamp_min)
  NPU_BOTH(clamp_max, "List", list, k_clamp_max)
  NPU_BOTH(pow, "List", list, k_pow)
  NPU_BOTH(add, "Tensor", tensor_and, k_add)
  NPU_BOTH(mul, "Tensor", tensor, k_mul)
  NPU_BOTH(div, "Tensor", tensor, k_div)
  NPU_BOTH(lerp, "Scalar", list_and, k_lerp, const Scalar&)
  NPU_BOTH(lerp, "ScalarList", list_and, k_lerp, Scalars)
  NPU_BOTH(lerp, "List", lists, k_lerp_lists)
  NPU_BOTH(addcmul, "Scalar", lists_and, k_addcmul, const Scalar&)
  NPU_BOTH(addcmul, "ScalarList", lists_and, k_addcmul, Scalars)
  NPU_BOTH(addcmul, "Tensor", lists_and_tensor, k_addcmul)
  NPU_BOTH(addcdiv, "Scalar", lists_and, k_addcdiv, const Scalar&)
  NPU_BOTH(addcdiv, "ScalarList", lists_and, k_addcdiv, Scalars)
  NPU_BOTH(addcdiv, "Tensor", lists_and_tensor, k_addcdiv)
  m.impl("_foreach_pow.ScalarAndTensor", &scalar_pow);
}

}  // namespace npu::foreach

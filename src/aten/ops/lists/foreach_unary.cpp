// SPDX-License-Identifier: Apache-2.0
// torch._foreach_* of one list: unary operations, zero_, copy_, clone.
#include <ATen/ops/_foreach_abs_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_acos_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_asin_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_atan_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_ceil_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_cos_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_cosh_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_erf_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_erfc_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_exp_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_expm1_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_floor_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_frac_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_lgamma_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_log10_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_log1p_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_log2_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_log_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_neg_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_reciprocal_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_round_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_rsqrt_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sigmoid_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sign_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sin_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sinh_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sqrt_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_tan_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_tanh_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_trunc_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_zero_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include "runtime/torch_compat.h"
#if NPU_HAS_FOREACH_CLONE
#include <ATen/ops/_foreach_clone_compositeexplicitautograd_dispatch.h>
#endif

#include "aten/ops/lists/foreach.h"
#include "npu/kinds.h"

namespace npu::foreach {
namespace {

namespace loops = at::compositeexplicitautograd;

template <const Op& op, Results (*loop)(List)>
Results unary(List self) {
  std::optional<Results> results = map_new(op, self, {}, {}, {});
  return results ? std::move(*results) : loop(self);
}

template <const Op& op, void (*loop)(List)>
void unary_(List self) {
  if (!map_into(op, self, {}, {}, {})) {
    loop(self);
  }
}

// name, code of kind unary.
#define NPU_FOREACH_UNARY(OP) \
  OP(abs, ABS)                \
  OP(acos, ACOS)              \
  OP(asin, ASIN)              \
  OP(atan, ATAN)              \
  OP(ceil, CEIL)              \
  OP(cos, COS)                \
  OP(cosh, COSH)              \
  OP(erf, ERF)                \
  OP(erfc, ERFC)              \
  OP(exp, EXP)                \
  OP(expm1, EXPM1)            \
  OP(floor, FLOOR)            \
  OP(frac, FRAC)              \
  OP(lgamma, LGAMMA)          \
  OP(log, LOG)                \
  OP(log10, LOG10)            \
  OP(log1p, LOG1P)            \
  OP(log2, LOG2)              \
  OP(neg, NEG)                \
  OP(reciprocal, RECIPROCAL)  \
  OP(round, ROUND)            \
  OP(rsqrt, RSQRT)            \
  OP(sigmoid, SIGMOID)        \
  OP(sign, SIGN)              \
  OP(sin, SIN)                \
  OP(sinh, SINH)              \
  OP(sqrt, SQRT)              \
  OP(tan, TAN)                \
  OP(tanh, TANH)              \
  OP(trunc, TRUNC)

#define NPU_DECLARE(name, unary_code) \
  constexpr Op k_##name{              \
      "aten::_foreach_" #name, NPU_MULTI_MAP_UNARY, NPU_UNARY_##unary_code};
NPU_FOREACH_UNARY(NPU_DECLARE)
#undef NPU_DECLARE

constexpr Op kZero{"aten::_foreach_zero_", NPU_MULTI_MAP_FILL, 0};
constexpr Op kCopy{"aten::_foreach_copy_", NPU_MULTI_MAP_COPY, 0};

void zero_(List self) {
  const at::Scalar zero(0);
  if (!map_into(kZero, self, {}, {}, zero)) {
    loops::_foreach_zero_(self);
  }
}

void copy_(List self, List src, bool non_blocking) {
  if (src.empty() || !map_into(kCopy, self, src, {}, {})) {
    loops::_foreach_copy_(self, src, non_blocking);
  }
}

#if NPU_HAS_FOREACH_CLONE
constexpr Op kClone{"aten::_foreach_clone", NPU_MULTI_MAP_COPY, 0};

Results clone(List self, std::optional<c10::MemoryFormat> format) {
  if (format.value_or(c10::MemoryFormat::Preserve) ==
      c10::MemoryFormat::Preserve) {
    if (std::optional<Results> results = map_new(kClone, self, {}, {}, {})) {
      return std::move(*results);
    }
  }
  return loops::_foreach_clone(self, format);
}
#endif

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
// Function pointers: one wrapper per signature is compiled, not one per name.
#define NPU_REGISTER(name, unary_code)                                  \
  m.impl("_foreach_" #name, &unary<k_##name, &loops::_foreach_##name>); \
  m.impl("_foreach_" #name "_", &unary_<k_##name, &loops::_foreach_##name##_>);
  NPU_FOREACH_UNARY(NPU_REGISTER)
#undef NPU_REGISTER
  m.impl("_foreach_zero_", &zero_);
  m.impl("_foreach_copy_", &copy_);
#if NPU_HAS_FOREACH_CLONE
  m.impl("_foreach_clone", &clone);
#endif
}

}  // namespace npu::foreach

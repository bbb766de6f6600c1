// SPDX-License-Identifier: Apache-2.0
// Loops over contiguous ranges of the tensors of a list, one table per
// instruction set.
//
// Every loop computes element by element in float (double for float64), without
// fused multiply-add, so that all tables give the same bits.
#pragma once

#include <cstdint>

namespace npu::host {

// Storage dtypes with loops: float16, bfloat16, float32, float64.
enum ListType : int { kListF16, kListBF16, kListF32, kListF64, kListTypes };

// name, formula (formulas.h), whether the scalar stands for y.
#define NPU_LIST_MAPS(OP)           \
  OP(neg, Neg, false)               \
  OP(abs, Abs, false)               \
  OP(sqrt, Sqrt, false)             \
  OP(rsqrt, Rsqrt, false)           \
  OP(reciprocal, Reciprocal, false) \
  OP(square, Square, false)         \
  OP(sign, Sign, false)             \
  OP(add, Add, false)               \
  OP(sub, Sub, false)               \
  OP(mul, Mul, false)               \
  OP(div, Div, false)               \
  OP(maximum, Maximum, false)       \
  OP(minimum, Minimum, false)       \
  OP(lerp, LerpScalar, false)       \
  OP(add_scalar, PlainAdd, true)    \
  OP(sub_scalar, PlainSub, true)    \
  OP(mul_scalar, Mul, true)         \
  OP(div_scalar, Div, true)         \
  OP(maximum_scalar, Maximum, true) \
  OP(minimum_scalar, Minimum, true) \
  OP(addcmul, Addcmul, false)       \
  OP(addcdiv, Addcdiv, false)       \
  OP(lerp_tensor, Lerp, false)      \
  OP(fill, Fill, false)

enum ListMap : int {
#define NPU_LIST_ENUM(name, formula, scalar_is_y) kMap_##name,
  NPU_LIST_MAPS(NPU_LIST_ENUM)
#undef NPU_LIST_ENUM
      kListMaps
};

// out may be x, y or z.
using ListMapFn = void (*)(
    void* out,
    const void* x,
    const void* y,
    const void* z,
    double a,
    std::int64_t n);

// Reductions: sums of x, of |x|, of x squared, the count of elements that are
// not 0; the greatest x, the greatest and least |x|. NaN wins.
enum ListFold : int {
  kFoldSum,
  kFoldAbs,
  kFoldSquare,
  kFoldCount,
  kFoldMax,
  kFoldAbsMax,
  kFoldAbsMin,
  kListFolds
};
// n > 0.
using FoldLine = double (*)(const void* x, std::int64_t n);

// One optimizer step over a range; values that are the same for a whole tensor
// are computed before.
struct StepLine {
  void* param;
  void* grad;
  void* state1;
  void* state2;
  void* state3;
  double grad_scale;  // gradients are divided by it, and stored; 0 = none
  double lr;          // adagrad: after decay
  double weight_decay;
  double beta1, beta2, eps;
  double step_size, root2;  // adam: lr / (1 - beta1^t), sqrt(1 - beta2^t)
  double momentum, dampening;
  bool maximize, decoupled, amsgrad, nesterov, first_step;
};
using StepFn = void (*)(const StepLine& line, std::int64_t n);

// Multiplies by `scale`; true when an element was not finite before.
using UnscaleLine = bool (*)(void* x, float scale, std::int64_t n);

struct ListTable {
  ListMapFn map[kListMaps][kListTypes];
  FoldLine fold[kListFolds][kListTypes];
  StepFn adam[kListTypes];
  StepFn sgd[kListTypes];
  StepFn adagrad[kListTypes];
  UnscaleLine unscale[kListTypes];
};

const ListTable& list_table() noexcept;  // for the ISA in use

namespace isa_baseline {
extern const ListTable kLists;
}
namespace isa_avx2 {
extern const ListTable kLists;
}
namespace isa_avx512 {
extern const ListTable kLists;
}

}  // namespace npu::host

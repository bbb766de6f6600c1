// SPDX-License-Identifier: Apache-2.0
// Loops over stretches of the tensors of a list, one table per instruction set.
//
// Every loop computes element by element in float (double for float64), without
// fused multiply-add, so that all tables give the same bits.
#pragma once

#include <cstdint>

namespace npu::host {

// Storage dtypes with loops: float16, bfloat16, float32, float64.
enum ListType : int { kListF16, kListBF16, kListF32, kListF64, kListTypes };

// name, reads y, reads z, result. x, y, z are elements and a the scalar.
// Orders of operations are PyTorch's.
#define NPU_LIST_MAPS(OP)                                     \
  OP(neg, false, false, -x)                                   \
  OP(abs, false, false, abs_of(x))                            \
  OP(sqrt, false, false, sqrt_of(x))                          \
  OP(rsqrt, false, false, C(1) / sqrt_of(x))                  \
  OP(reciprocal, false, false, C(1) / x)                      \
  OP(square, false, false, x* x)                              \
  OP(sign, false, false, x > 0 ? C(1) : x < 0 ? C(-1) : C(0)) \
  OP(add, true, false, fused_of(a, y, x))                     \
  OP(sub, true, false, fused_of(-a, y, x))                    \
  OP(mul, true, false, x* y)                                  \
  OP(div, true, false, x / y)                                 \
  OP(maximum, true, false, (x > y || x != x ? x : y))         \
  OP(minimum, true, false, (x < y || x != x ? x : y))         \
  OP(lerp, true, false, lerp_of(x, y, a))                     \
  OP(add_scalar, false, false, x + a)                         \
  OP(sub_scalar, false, false, x - a)                         \
  OP(mul_scalar, false, false, x* a)                          \
  OP(div_scalar, false, false, x / a)                         \
  OP(maximum_scalar, false, false, (x > a || x != x ? x : a)) \
  OP(minimum_scalar, false, false, (x < a || x != x ? x : a)) \
  OP(addcmul, true, true, fused_of(a* y, z, x))               \
  OP(addcdiv, true, true, x + a * y / z)                      \
  OP(lerp_tensor, true, true, lerp_of(x, y, z))               \
  OP(fill, false, false, a)

enum ListMap : int {
#define NPU_LIST_ENUM(name, y, z, result) kMap_##name,
  NPU_LIST_MAPS(NPU_LIST_ENUM)
#undef NPU_LIST_ENUM
      kListMaps
};

// out may be x, y or z.
using MapLine = void (*)(
    void* out,
    const void* x,
    const void* y,
    const void* z,
    double a,
    std::int64_t n);

// What is gathered over elements: sum of x, of |x|, of x squared, of those
// that are not 0; the greatest x, the greatest and least |x|. NaN wins.
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

// One optimizer step over a stretch; numbers that are the same for a whole
// tensor are worked out before.
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
  MapLine map[kListMaps][kListTypes];
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

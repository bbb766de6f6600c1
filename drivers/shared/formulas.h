// SPDX-License-Identifier: Apache-2.0
// Formulas of elementwise operators, for every driver that computes them.
//
// A formula is a struct with one function `apply`, from elements and scalars in
// a compute type to the result. Here are those that lists and programs use too;
// those of single kinds stand in shared/map_*.h, beside the rows that say which
// code and which dtypes they are for. See arithmetic.h for what may be called.
#pragma once

#include <cstdint>
#include <type_traits>

#include "npu/kinds.h"
#include "npu/op.h"
#include "shared/arithmetic.h"

namespace npu {

// ---- scalars ----

template <class T>
NPU_MAP_FN T scalar_as(const npu_scalar& value) noexcept {
  const bool exact =
      value.kind != NPU_SCALAR_FLOAT && value.kind != NPU_SCALAR_COMPLEX;
  if constexpr (kIsComplex<T>) {
    return T(static_cast<Real<T>>(value.re), static_cast<Real<T>>(value.im));
  } else if constexpr (kIsBool<T>) {
    return exact ? value.i != 0 : value.re != 0 || value.im != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return exact ? static_cast<T>(value.i) : static_cast<T>(value.re);
  } else {
    return static_cast<T>(value.re);
  }
}

// The scalars of a call in the compute type; has(k): it was given.
template <class T>
struct Scalars {
  T a, b, c, d;
  T factor;  // a, or 1 when it was not given
  const npu_scalar* raw;

  NPU_MAP_FN explicit Scalars(const npu_scalar* s) noexcept
      : a(scalar_as<T>(s[0])),
        b(scalar_as<T>(s[1])),
        c(scalar_as<T>(s[2])),
        d(scalar_as<T>(s[3])),
        factor(s[0].kind == NPU_SCALAR_NONE ? T(1) : a),
        raw(s) {}
  // One number, as lists have it.
  NPU_MAP_FN explicit Scalars(T number) noexcept
      : a(number), b(0), c(0), d(0), factor(number), raw(nullptr) {}
  NPU_MAP_FN bool has(int k) const noexcept {
    return raw[k].kind != NPU_SCALAR_NONE;
  }
};

// ---- what a formula is written with ----

// A formula without scalars ignores `s`.
#define NPU_MAP(name, type, arguments, ...)                                  \
  struct name {                                                              \
    template <class T>                                                       \
    [[gnu::always_inline]] NPU_SHARED static type apply(                     \
        NPU_MAP_ARGUMENTS arguments, [[maybe_unused]] const Scalars<T>& s) { \
      return static_cast<type>(__VA_ARGS__);                                 \
    }                                                                        \
  };
#define NPU_MAP_ARGUMENTS(...) __VA_ARGS__

// name(x), name(x, y), name(x, y, z): results of the compute type.
#define NPU_MAP1(name, ...) NPU_MAP(name, T, (T x), __VA_ARGS__)
#define NPU_MAP2(name, ...) NPU_MAP(name, T, (T x, T y), __VA_ARGS__)
#define NPU_MAP3(name, ...) NPU_MAP(name, T, (T x, T y, T z), __VA_ARGS__)

// ---- formulas that run in more than one place ----

namespace formula {

NPU_MAP1(Neg, negate(x))
NPU_MAP(Abs, Real<T>, (T x), absolute(x))
NPU_MAP1(Sign, sign_of(x))
NPU_MAP1(Sqrt, square_root(x))
NPU_MAP1(Rsqrt, divide(T(1), square_root(x)))
NPU_MAP1(Reciprocal, divide(T(1), x))
NPU_MAP1(Square, multiply(x, x))
NPU_MAP1(Relu, x < T(0) ? T(0) : x)
NPU_MAP1(LeakyRelu, x > 0 ? x : x * s.a)
NPU_MAP1(Affine, add(multiply(x, s.a), s.b))
NPU_MAP(Fill, T, ([[maybe_unused]] T x), s.a)

NPU_MAP2(Add, multiply_add(s.factor, y, x))
NPU_MAP2(Sub, multiply_add(negate(s.factor), y, x))
// Without a factor: old instruction sets have no fused multiply-add.
NPU_MAP2(PlainAdd, add(x, y))
NPU_MAP2(PlainSub, subtract(x, y))
NPU_MAP2(Mul, multiply(x, y))
NPU_MAP2(Div, divide(x, y))
NPU_MAP2(Maximum, greater(x, y))
NPU_MAP2(Minimum, lesser(x, y))
NPU_MAP2(SquaredDifference, multiply(subtract(x, y), subtract(x, y)))
NPU_MAP2(LerpScalar, interpolate(x, y, s.a))
// Backward: x is the gradient, y the input or the result.
NPU_MAP2(SigmoidGrad, multiply(x, conjugate(multiply(T(1) - y, y))))
NPU_MAP2(TanhGrad, multiply(x, conjugate(T(1) - multiply(y, y))))
NPU_MAP2(ThresholdGrad, y <= s.a ? T(0) : x)
NPU_MAP2(LeakyReluGrad, y > 0 ? x : x * s.a)

NPU_MAP(Eq, bool, (T x, T y), x == y)
NPU_MAP(Ne, bool, (T x, T y), x != y)
NPU_MAP(Lt, bool, (T x, T y), x < y)
NPU_MAP(Le, bool, (T x, T y), x <= y)
NPU_MAP(Gt, bool, (T x, T y), x > y)
NPU_MAP(Ge, bool, (T x, T y), x >= y)

NPU_MAP3(Where, x != T(0) ? y : z)
NPU_MAP3(Addcmul, multiply_add(multiply(s.factor, y), z, x))
NPU_MAP3(Addcdiv, add(x, divide(multiply(s.factor, y), z)))
NPU_MAP3(MulAdd, add(multiply(x, y), z))
NPU_MAP3(Lerp, interpolate(x, y, z))

}  // namespace formula

// Inputs of a formula.
template <class Op, class T>
constexpr int arity() noexcept {
  using S = const Scalars<T>&;
  if constexpr (requires(T x, S s) { Op::apply(x, s); }) {
    return 1;
  } else if constexpr (requires(T x, S s) { Op::apply(x, x, s); }) {
    return 2;
  } else {
    return 3;
  }
}

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// Formulas of elementwise operators, and the loop that runs one over a line.
//
// A formula is a struct with one function `apply`, from elements and scalars in
// a compute type to the result. Here are those that run in more than one place:
// over lines of every compute type (kernels/map_*.cpp), over lines of float and
// double compiled once per instruction set (kernels/isa/map_loops.h), and over
// the tensors of a list (kernels/isa/lists_loops.h). Formulas for the first
// alone stand in kernels/map_*.cpp. See arithmetic.h for what may be called.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/arithmetic.h"
#include "npu/kinds.h"
#include "npu/op.h"

namespace npu::host {

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
    [[gnu::always_inline]] static type apply(                                \
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

// kind, code, formula: loops of float and double are compiled once per
// instruction set. `map_row` (map.h) then leaves these two types out.
#define NPU_ISA_MAPS(ROW)                            \
  ROW(UNARY, ABS, Abs)                               \
  ROW(UNARY, NEG, Neg)                               \
  ROW(UNARY, SQUARE, Square)                         \
  ROW(UNARY, RECIPROCAL, Reciprocal)                 \
  ROW(UNARY, RELU, Relu)                             \
  ROW(UNARY_WITH, LEAKY_RELU, LeakyRelu)             \
  ROW(UNARY_WITH, AFFINE, Affine)                    \
  ROW(BINARY, ADD, Add)                              \
  ROW(BINARY, SUB, Sub)                              \
  ROW(BINARY, MUL, Mul)                              \
  ROW(BINARY, DIV, Div)                              \
  ROW(BINARY, MAXIMUM, Maximum)                      \
  ROW(BINARY, MINIMUM, Minimum)                      \
  ROW(BINARY, SIGMOID_GRAD, SigmoidGrad)             \
  ROW(BINARY, TANH_GRAD, TanhGrad)                   \
  ROW(BINARY, THRESHOLD_GRAD, ThresholdGrad)         \
  ROW(BINARY, LEAKY_RELU_GRAD, LeakyReluGrad)        \
  ROW(BINARY, SQUARED_DIFFERENCE, SquaredDifference) \
  ROW(TERNARY, WHERE, Where)                         \
  ROW(TERNARY, ADDCMUL, Addcmul)                     \
  ROW(TERNARY, ADDCDIV, Addcdiv)                     \
  ROW(TERNARY, MUL_ADD, MulAdd)                      \
  ROW(COMPARE, EQ, Eq)                               \
  ROW(COMPARE, NE, Ne)                               \
  ROW(COMPARE, LT, Lt)                               \
  ROW(COMPARE, LE, Le)                               \
  ROW(COMPARE, GT, Gt)                               \
  ROW(COMPARE, GE, Ge)

template <class Op>
inline constexpr bool kHasIsaLoops = false;
#define NPU_HAS_ISA_LOOPS(kind, code, name) \
  template <>                               \
  inline constexpr bool kHasIsaLoops<formula::name> = true;
NPU_ISA_MAPS(NPU_HAS_ISA_LOOPS)
#undef NPU_HAS_ISA_LOOPS

// What a formula is when its factor is 1.
template <class Op>
struct WithoutFactor {
  using type = Op;
};
template <>
struct WithoutFactor<formula::Add> {
  using type = formula::PlainAdd;
};
template <>
struct WithoutFactor<formula::Sub> {
  using type = formula::PlainSub;
};

// ---- a formula over a line ----

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

// What apply returns; a pair when there are two outputs.
template <class Op, class T>
NPU_MAP_FN auto apply_at(
    const T* x, const T* y, const T* z, std::int64_t i, const Scalars<T>& s) {
  if constexpr (arity<Op, T>() == 1) {
    return Op::apply(x[i], s);
  } else if constexpr (arity<Op, T>() == 2) {
    return Op::apply(x[i], y[i], s);
  } else {
    return Op::apply(x[i], y[i], z[i], s);
  }
}
template <class Op, class T>
using Result = decltype(apply_at<Op, T>(
    nullptr, nullptr, nullptr, 0, std::declval<const Scalars<T>&>()));

// n elements in the compute type, contiguous. An output may be an input.
struct MapLine {
  void* out[2];
  const void* in[3];
  const npu_scalar* scalars;  // four of them
};
using MapLineFn = npu_status (*)(const MapLine& line, std::int64_t n);

// One output. `ivdep` because an output that is an input is the same element.
template <class Op, class T>
NPU_MAP_FN void run_line(const MapLine& line, std::int64_t n) {
  using R = Result<Op, T>;
  using Stored = std::conditional_t<kIsBool<R>, std::uint8_t, R>;
  const Scalars<T> s(line.scalars);
  const T* x = static_cast<const T*>(line.in[0]);
  const T* y = static_cast<const T*>(line.in[1]);
  const T* z = static_cast<const T*>(line.in[2]);
  Stored* out = static_cast<Stored*>(line.out[0]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<Stored>(apply_at<Op, T>(x, y, z, i, s));
  }
}

}  // namespace npu::host

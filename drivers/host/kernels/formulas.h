// SPDX-License-Identifier: Apache-2.0
// The loop that runs a formula over a line.
//
// The formulas of shared/formulas.h run over lines of every compute type
// (kernels/map_*.cpp), over lines of float and double compiled once per
// instruction set (kernels/isa/map_loops.h), and over the tensors of a list
// (kernels/isa/lists_loops.h); those of shared/map_*.h over the first alone.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "npu/kinds.h"
#include "npu/op.h"
#include "shared/formulas.h"

namespace npu::host {

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

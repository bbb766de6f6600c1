// SPDX-License-Identifier: Apache-2.0
// The loops behind one MapLoops. Included by each map_<isa>.cpp with NPU_ISA
// set to its namespace; brings in no inline function that the linker could
// share with another instruction set (see dtype.h). Each line says what the
// operator of the same name in kernels/map_*.cpp says.
#include "kernels/isa/map.h"

namespace npu::host::NPU_ISA {
namespace {

// a * b + c with one rounding, as PyTorch's CPU loops do it.
[[gnu::always_inline]] inline float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
[[gnu::always_inline]] inline double fused(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

// x, y, z: the inputs' elements; a, b: scalars. `ivdep` because an output that
// is an input is the same element.
#define NPU_LOOP(name, result, expression)                                 \
  template <class T>                                                       \
  npu_status name(const MapLine& line, std::int64_t n) {                   \
    const T* xs = static_cast<const T*>(line.in[0]);                       \
    [[maybe_unused]] const T* ys = static_cast<const T*>(line.in[1]);      \
    [[maybe_unused]] const T* zs = static_cast<const T*>(line.in[2]);      \
    [[maybe_unused]] const T a = line.scalars[0].kind == NPU_SCALAR_NONE   \
                                     ? T(1)                                \
                                     : static_cast<T>(line.scalars[0].re); \
    [[maybe_unused]] const T b = static_cast<T>(line.scalars[1].re);       \
    result* out = static_cast<result*>(line.out[0]);                       \
    _Pragma("GCC ivdep") for (std::int64_t i = 0; i < n; ++i) {            \
      const T x = xs[i];                                                   \
      expression;                                                          \
    }                                                                      \
    return NPU_OK;                                                         \
  }
#define NPU_LOOP1(name, value) NPU_LOOP(name, T, out[i] = (value))
#define NPU_LOOP2(name, value) \
  NPU_LOOP(name, T, const T y = ys[i]; out[i] = (value))
#define NPU_LOOP3(name, value) \
  NPU_LOOP(name, T, const T y = ys[i]; const T z = zs[i]; out[i] = (value))
#define NPU_LOOP_COMPARE(name, value) \
  NPU_LOOP(name, std::uint8_t, const T y = ys[i]; out[i] = (value) ? 1 : 0)

NPU_LOOP1(absolute, x < T(0) ? -x : x == T(0) ? T(0) : x)
NPU_LOOP1(negate, -x)
NPU_LOOP1(square, x* x)
NPU_LOOP1(reciprocal, T(1) / x)
NPU_LOOP1(relu, x < T(0) ? T(0) : x)
NPU_LOOP1(leaky_relu, x > T(0) ? x : x * a)
NPU_LOOP1(affine, x* a + b)
NPU_LOOP2(plain_add, x + y)
NPU_LOOP2(plain_sub, x - y)
NPU_LOOP2(scaled_add, fused(a, y, x))
NPU_LOOP2(scaled_sub, fused(-a, y, x))
NPU_LOOP2(mul, x* y)
NPU_LOOP2(div, x / y)
NPU_LOOP2(maximum, x > y || x != x ? x : y)
NPU_LOOP2(minimum, x < y || x != x ? x : y)
NPU_LOOP2(sigmoid_grad, x*((T(1) - y) * y))
NPU_LOOP2(tanh_grad, x*(T(1) - y * y))
NPU_LOOP2(threshold_grad, y <= a ? T(0) : x)
NPU_LOOP2(leaky_relu_grad, y > T(0) ? x : x * a)
NPU_LOOP2(squared_difference, (x - y) * (x - y))
NPU_LOOP3(addcmul, fused(a* y, z, x))
NPU_LOOP3(addcdiv, x + a * y / z)
NPU_LOOP3(mul_add, x* y + z)
NPU_LOOP3(where, x != T(0) ? y : z)
NPU_LOOP_COMPARE(eq, x == y)
NPU_LOOP_COMPARE(ne, x != y)
NPU_LOOP_COMPARE(lt, x < y)
NPU_LOOP_COMPARE(le, x <= y)
NPU_LOOP_COMPARE(gt, x > y)
NPU_LOOP_COMPARE(ge, x >= y)

// Without the factor no instruction set is slow: the oldest has no fused one.
bool has_factor(const MapLine& line) {
  return line.scalars[0].kind != NPU_SCALAR_NONE && line.scalars[0].re != 1;
}
template <class T>
npu_status add(const MapLine& line, std::int64_t n) {
  return has_factor(line) ? scaled_add<T>(line, n) : plain_add<T>(line, n);
}
template <class T>
npu_status sub(const MapLine& line, std::int64_t n) {
  return has_factor(line) ? scaled_sub<T>(line, n) : plain_sub<T>(line, n);
}

#define NPU_ROW(kind, code, name)           \
  {                                         \
    NPU_KIND_##kind, NPU_##kind##_##code, { \
      name<float>, name<double>             \
    }                                       \
  }

constexpr MapLoop kRows[] = {
    NPU_ROW(UNARY, ABS, absolute),
    NPU_ROW(UNARY, NEG, negate),
    NPU_ROW(UNARY, SQUARE, square),
    NPU_ROW(UNARY, RECIPROCAL, reciprocal),
    NPU_ROW(UNARY, RELU, relu),
    NPU_ROW(UNARY_WITH, LEAKY_RELU, leaky_relu),
    NPU_ROW(UNARY_WITH, AFFINE, affine),
    NPU_ROW(BINARY, ADD, add),
    NPU_ROW(BINARY, SUB, sub),
    NPU_ROW(BINARY, MUL, mul),
    NPU_ROW(BINARY, DIV, div),
    NPU_ROW(BINARY, MAXIMUM, maximum),
    NPU_ROW(BINARY, MINIMUM, minimum),
    NPU_ROW(BINARY, SIGMOID_GRAD, sigmoid_grad),
    NPU_ROW(BINARY, TANH_GRAD, tanh_grad),
    NPU_ROW(BINARY, THRESHOLD_GRAD, threshold_grad),
    NPU_ROW(BINARY, LEAKY_RELU_GRAD, leaky_relu_grad),
    NPU_ROW(BINARY, SQUARED_DIFFERENCE, squared_difference),
    NPU_ROW(TERNARY, WHERE, where),
    NPU_ROW(TERNARY, ADDCMUL, addcmul),
    NPU_ROW(TERNARY, ADDCDIV, addcdiv),
    NPU_ROW(TERNARY, MUL_ADD, mul_add),
    NPU_ROW(COMPARE, EQ, eq),
    NPU_ROW(COMPARE, NE, ne),
    NPU_ROW(COMPARE, LT, lt),
    NPU_ROW(COMPARE, LE, le),
    NPU_ROW(COMPARE, GT, gt),
    NPU_ROW(COMPARE, GE, ge),
};

#undef NPU_ROW
#undef NPU_LOOP_COMPARE
#undef NPU_LOOP3
#undef NPU_LOOP2
#undef NPU_LOOP1
#undef NPU_LOOP

}  // namespace

extern const MapLoops kMapLoops = {kRows, sizeof(kRows) / sizeof(kRows[0])};

}  // namespace npu::host::NPU_ISA

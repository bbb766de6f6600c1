// SPDX-License-Identifier: Apache-2.0
// Activations: kinds unary and unary_with forward, kind binary backward.
#pragma once

#include "shared/map_math.h"

namespace npu::formula::activation {

template <class T>
inline constexpr T kBeta = T(0.79788456080286535588);  // sqrt(2 / pi)
template <class T>
inline constexpr T kCubic = T(0.044715);

template <class T>
NPU_SHARED T gelu_cdf(T x) {
  return T(0.5) * (1 + std::erf(x * T(0.70710678118654752440)));
}
template <class T>
NPU_SHARED T gelu_tanh_of(T x) {
  return std::tanh(kBeta<T> * (x + kCubic<T> * x * x * x));
}
template <class T>
NPU_SHARED T gelu_gradient(T x) {
  const T pdf = std::exp(T(-0.5) * x * x) * kBeta<T> / 2;
  return gelu_cdf(x) + x * pdf;
}
template <class T>
NPU_SHARED T gelu_tanh_gradient(T x) {
  const T t = gelu_tanh_of(x);
  const T inner = kBeta<T> * (1 + 3 * kCubic<T> * x * x);
  return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * inner;
}
template <class T>
NPU_SHARED T softplus_tanh(T x) {
  return std::tanh(std::log1p(std::exp(x)));
}
template <class T>
NPU_SHARED T mish_gradient(T x) {
  const T t = softplus_tanh(x);
  return t + x * sigmoid(x) * (1 - t * t);
}
template <class T>
NPU_SHARED T silu_gradient(T x) {
  const T s = sigmoid(x);
  return multiply(s, T(1) + multiply(x, T(1) - s));
}
template <class T>
NPU_SHARED T log_sigmoid_gradient(T x) {
  const T z = std::exp(-std::abs(x));
  return x < 0 ? 1 - z / (1 + z) : z / (1 + z);
}
template <class T>
NPU_SHARED T ramp(T x) {  // 0 below -3, 6 above 3
  return lesser(greater(x + 3, T(0)), T(6));
}
template <class T>
NPU_SHARED T elu_of(T x, T alpha, T scale, T input_scale) {
  return x > 0 ? scale * x : scale * alpha * std::expm1(x * input_scale);
}
template <class T>
NPU_SHARED T elu_gradient(T y, const Scalars<T>& s) {
  const T slope = s.a * s.b;
  if (y > 0) {
    return s.b;
  }
  return s.d != 0 ? s.c * (y + slope) : s.c * slope * std::exp(y * s.c);
}
template <class T>
NPU_SHARED T logit_gradient(T y, const Scalars<T>& s) {
  const bool clamps = s.has(0) && s.a >= 0;
  const T low = clamps ? s.a : T(0);
  if (y < low || y > 1 - low) {
    return clamps ? T(0) : std::numeric_limits<T>::quiet_NaN();
  }
  return 1 / (y * (1 - y));
}

// ---- forward ----

NPU_MAP1(Sigmoid, sigmoid(x))
NPU_MAP1(LogSigmoid, std::min(T(0), x) - std::log1p(std::exp(-std::abs(x))))
NPU_MAP1(Relu6, x<T(0) ? T(0) : x> T(6) ? T(6) : x)
NPU_MAP1(Gelu, x* gelu_cdf(x))
NPU_MAP1(GeluTanh, T(0.5) * x * (1 + gelu_tanh_of(x)))
NPU_MAP1(Silu, divide(x, T(1) + std::exp(-x)))
NPU_MAP1(Mish, x* softplus_tanh(x))
NPU_MAP1(
    Selu, elu_of(x, T(1.6732632423543772848), T(1.0507009873554804934), T(1)))
NPU_MAP1(Softsign, x / (Real<T>(1) + absolute(x)))
NPU_MAP1(Hardsigmoid, ramp(x) / 6)
NPU_MAP1(Hardswish, x* ramp(x) / 6)

#define NPU_UNARY_ACTIVATIONS(ROW)                                         \
  ROW(NPU_UNARY_SIGMOID, Sigmoid, kFloatBits | kComplexBits | kPromotes)   \
  ROW(NPU_UNARY_LOG_SIGMOID, LogSigmoid, kFloatBits)                       \
  ROW(NPU_UNARY_RELU, Relu, kRealBits)                                     \
  ROW(NPU_UNARY_RELU6, Relu6, kRealBits)                                   \
  ROW(NPU_UNARY_GELU, Gelu, kFloatBits)                                    \
  ROW(NPU_UNARY_GELU_TANH, GeluTanh, kFloatBits)                           \
  ROW(NPU_UNARY_SILU, Silu, kFloatBits | kComplexBits)                     \
  ROW(NPU_UNARY_MISH, Mish, kFloatBits)                                    \
  ROW(NPU_UNARY_SELU, Selu, kFloatBits)                                    \
  ROW(NPU_UNARY_SOFTSIGN, Softsign, kFloatBits | kComplexBits | kPromotes) \
  ROW(NPU_UNARY_HARDSIGMOID, Hardsigmoid, kFloatBits)                      \
  ROW(NPU_UNARY_HARDSWISH, Hardswish, kFloatBits)

// ---- backward: x is the gradient, y the input or the result ----

NPU_MAP2(GeluGrad, x* gelu_gradient(y))
NPU_MAP2(GeluTanhGrad, x* gelu_tanh_gradient(y))
NPU_MAP2(SiluGrad, multiply(x, conjugate(silu_gradient(y))))
NPU_MAP2(MishGrad, x* mish_gradient(y))
NPU_MAP2(HardsigmoidGrad, y > -3 && y < 3 ? x / 6 : T(0))
NPU_MAP2(HardswishGrad, y <= -3 ? T(0) : y < 3 ? x * (y / 3 + T(0.5)) : x)
NPU_MAP2(LogSigmoidGrad, x* log_sigmoid_gradient(y))
NPU_MAP2(EluGrad, x* elu_gradient(y, s))
NPU_MAP2(HardtanhGrad, y <= s.a || y >= s.b ? T(0) : x)
NPU_MAP2(HardshrinkGrad, y >= -s.a && y <= s.a ? T(0) : x)
NPU_MAP2(SoftplusGrad, y* s.a > s.b ? x : x * sigmoid(y * s.a))
NPU_MAP2(LogitGrad, x* logit_gradient(y, s))
NPU_MAP2(Glu, x* sigmoid(y))
NPU_MAP2(Prelu, x > 0 ? x : y * x)

#define NPU_BINARY_GRADIENTS(ROW)                                      \
  ROW(NPU_BINARY_SIGMOID_GRAD, SigmoidGrad, kFloatBits | kComplexBits) \
  ROW(NPU_BINARY_TANH_GRAD, TanhGrad, kFloatBits | kComplexBits)       \
  ROW(NPU_BINARY_THRESHOLD_GRAD, ThresholdGrad, kRealBits)             \
  ROW(NPU_BINARY_GELU_GRAD, GeluGrad, kFloatBits)                      \
  ROW(NPU_BINARY_GELU_TANH_GRAD, GeluTanhGrad, kFloatBits)             \
  ROW(NPU_BINARY_SILU_GRAD, SiluGrad, kFloatBits | kComplexBits)       \
  ROW(NPU_BINARY_MISH_GRAD, MishGrad, kFloatBits)                      \
  ROW(NPU_BINARY_HARDSIGMOID_GRAD, HardsigmoidGrad, kFloatBits)        \
  ROW(NPU_BINARY_HARDSWISH_GRAD, HardswishGrad, kFloatBits)            \
  ROW(NPU_BINARY_LOG_SIGMOID_GRAD, LogSigmoidGrad, kFloatBits)         \
  ROW(NPU_BINARY_LEAKY_RELU_GRAD, LeakyReluGrad, kFloatBits)           \
  ROW(NPU_BINARY_ELU_GRAD, EluGrad, kFloatBits)                        \
  ROW(NPU_BINARY_HARDTANH_GRAD, HardtanhGrad, kFloatBits)              \
  ROW(NPU_BINARY_HARDSHRINK_GRAD, HardshrinkGrad, kFloatBits)          \
  ROW(NPU_BINARY_SOFTPLUS_GRAD, SoftplusGrad, kFloatBits)              \
  ROW(NPU_BINARY_LOGIT_GRAD, LogitGrad, kFloatBits)                    \
  ROW(NPU_BINARY_GLU, Glu, kFloatBits)                                 \
  ROW(NPU_BINARY_PRELU, Prelu, kFloatBits)

}  // namespace npu::formula::activation

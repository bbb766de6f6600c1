// SPDX-License-Identifier: Apache-2.0
// What the sources of programs use of the standard library, for NVRTC, which
// has none. It stands in for <cmath>, <cstdint> and the others that embed.cmake
// names.
#pragma once

typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
typedef unsigned long size_t;

// Builtins of compilers for the host.
#define __builtin_fabsf ::fabsf
#define __builtin_fabs ::fabs
#define __builtin_fmaf ::fmaf
#define __builtin_fma ::fma
#define __builtin_sqrtf ::sqrtf
#define __builtin_sqrt ::sqrt

#define UINT64_C(x) x##ULL
#define INT64_C(x) x##LL
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807LL
#define UINT64_MAX 18446744073709551615ULL
#define INT64_MIN (-INT64_MAX - 1)

namespace std {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;

// ---- type_traits ----

template <class T, T kValue>
struct integral_constant {
  static constexpr T value = kValue;
};
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;
template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T>
inline constexpr bool is_floating_point_v =
    is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_integral_v =
    is_same_v<T, bool> || is_same_v<T, char> || is_same_v<T, signed char> ||
    is_same_v<T, unsigned char> || is_same_v<T, short> ||
    is_same_v<T, unsigned short> || is_same_v<T, int> ||
    is_same_v<T, unsigned> || is_same_v<T, long> ||
    is_same_v<T, unsigned long> || is_same_v<T, long long> ||
    is_same_v<T, unsigned long long>;
template <class T>
inline constexpr bool is_arithmetic_v =
    is_integral_v<T> || is_floating_point_v<T>;
template <bool kYes, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kYes, class A, class B>
using conditional_t = typename conditional<kYes, A, B>::type;

// ---- limits, numbers ----

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  __host__ __device__ static constexpr float max() {
    return 3.40282346638528859812e+38F;
  }
  __host__ __device__ static constexpr float infinity() {
    return __builtin_bit_cast(float, 0x7f800000u);
  }
  __host__ __device__ static constexpr float quiet_NaN() {
    return __builtin_bit_cast(float, 0x7fc00000u);
  }
};
template <>
struct numeric_limits<double> {
  __host__ __device__ static constexpr double max() {
    return 1.79769313486231570815e+308;
  }
  __host__ __device__ static constexpr double infinity() {
    return __builtin_bit_cast(double, 0x7ff0000000000000ull);
  }
  __host__ __device__ static constexpr double quiet_NaN() {
    return __builtin_bit_cast(double, 0x7ff8000000000000ull);
  }
};
template <>
struct numeric_limits<int64_t> {
  __host__ __device__ static constexpr int64_t max() {
    return INT64_MAX;
  }
  __host__ __device__ static constexpr int64_t min() {
    return INT64_MIN;
  }
};
namespace numbers {
template <class T>
inline constexpr T ln2_v = static_cast<T>(0.693147180559945309417232121458);
template <class T>
inline constexpr T pi_v = static_cast<T>(3.141592653589793238462643383280);
template <class T>
inline constexpr T sqrt2_v = static_cast<T>(1.414213562373095048801688724210);
template <class T>
inline constexpr T inv_sqrtpi_v =
    static_cast<T>(0.564189583547756286948079451561);
template <class T>
inline constexpr T inv_pi_v = static_cast<T>(0.318309886183790671537767526745);
template <class T>
inline constexpr T log2e_v = static_cast<T>(1.442695040888963407359924681002);
inline constexpr double ln2 = ln2_v<double>;
inline constexpr double pi = pi_v<double>;
inline constexpr double sqrt2 = sqrt2_v<double>;
}  // namespace numbers

// ---- cmath, algorithm ----

#define NPU_JIT_FUNCTION(name)                       \
  __host__ __device__ inline float name(float x) {   \
    return ::name##f(x);                             \
  }                                                  \
  __host__ __device__ inline double name(double x) { \
    return ::name(x);                                \
  }
NPU_JIT_FUNCTION(exp)
NPU_JIT_FUNCTION(exp2)
NPU_JIT_FUNCTION(expm1)
NPU_JIT_FUNCTION(log)
NPU_JIT_FUNCTION(log2)
NPU_JIT_FUNCTION(log10)
NPU_JIT_FUNCTION(log1p)
NPU_JIT_FUNCTION(sin)
NPU_JIT_FUNCTION(cos)
NPU_JIT_FUNCTION(tan)
NPU_JIT_FUNCTION(asin)
NPU_JIT_FUNCTION(acos)
NPU_JIT_FUNCTION(atan)
NPU_JIT_FUNCTION(sinh)
NPU_JIT_FUNCTION(cosh)
NPU_JIT_FUNCTION(tanh)
NPU_JIT_FUNCTION(asinh)
NPU_JIT_FUNCTION(acosh)
NPU_JIT_FUNCTION(atanh)
NPU_JIT_FUNCTION(sqrt)
NPU_JIT_FUNCTION(erf)
NPU_JIT_FUNCTION(erfc)
NPU_JIT_FUNCTION(floor)
NPU_JIT_FUNCTION(ceil)
NPU_JIT_FUNCTION(trunc)
NPU_JIT_FUNCTION(nearbyint)
#undef NPU_JIT_FUNCTION
#define NPU_JIT_FUNCTION(name)                                 \
  __host__ __device__ inline float name(float x, float y) {    \
    return ::name##f(x, y);                                    \
  }                                                            \
  __host__ __device__ inline double name(double x, double y) { \
    return ::name(x, y);                                       \
  }
NPU_JIT_FUNCTION(pow)
NPU_JIT_FUNCTION(atan2)
NPU_JIT_FUNCTION(fmod)
NPU_JIT_FUNCTION(hypot)
NPU_JIT_FUNCTION(copysign)
NPU_JIT_FUNCTION(nextafter)
NPU_JIT_FUNCTION(fmax)
NPU_JIT_FUNCTION(fmin)
#undef NPU_JIT_FUNCTION

__host__ __device__ inline float abs(float x) {
  return ::fabsf(x);
}
__host__ __device__ inline double abs(double x) {
  return ::fabs(x);
}
__host__ __device__ inline int64_t abs(int64_t x) {
  return x < 0 ? -x : x;
}
__host__ __device__ inline float ldexp(float x, int exponent) {
  return ::ldexpf(x, exponent);
}
__host__ __device__ inline double ldexp(double x, int exponent) {
  return ::ldexp(x, exponent);
}
__host__ __device__ inline float frexp(float x, int* exponent) {
  return ::frexpf(x, exponent);
}
__host__ __device__ inline double frexp(double x, int* exponent) {
  return ::frexp(x, exponent);
}
__host__ __device__ inline bool isinf(float x) {
  return x - x != x - x && x == x;
}
__host__ __device__ inline bool isinf(double x) {
  return x - x != x - x && x == x;
}
__host__ __device__ inline bool isnan(float x) {
  return x != x;
}
__host__ __device__ inline bool isnan(double x) {
  return x != x;
}
__host__ __device__ inline bool isfinite(float x) {
  return x - x == x - x;
}
__host__ __device__ inline bool isfinite(double x) {
  return x - x == x - x;
}
__host__ __device__ inline bool signbit(float x) {
  return __builtin_bit_cast(uint32_t, x) >> 31 != 0;
}
__host__ __device__ inline bool signbit(double x) {
  return __builtin_bit_cast(uint64_t, x) >> 63 != 0;
}
template <class T>
__host__ __device__ constexpr const T& min(const T& x, const T& y) {
  return y < x ? y : x;
}
template <class T>
__host__ __device__ constexpr const T& max(const T& x, const T& y) {
  return x < y ? y : x;
}

}  // namespace std

// SPDX-License-Identifier: Apache-2.0
// Constants of any width, and the macros that end a file of special functions:
// name_of<W>, written once, becomes name for float and for double. The forms in
// double are for functions whose float64 answer is PyTorch's to the last bits
// only where each step is rounded as there.
#pragma once

#include <limits>

namespace npu::host {

template <class W>
inline constexpr W kPi = W(3.141592653589793238462643383279502884L);
template <class W>
inline constexpr W kEuler = W(0.577215664901532860606512090082402431L);
template <class W>
inline constexpr W kInf = std::numeric_limits<W>::infinity();
template <class W>
inline constexpr W kNan = std::numeric_limits<W>::quiet_NaN();
template <class W>
inline constexpr W kEps = std::numeric_limits<W>::epsilon();

#define NPU_SPECIAL1(name)                           \
  float name(float x) {                              \
    return static_cast<float>(name##_of(double{x})); \
  }                                                  \
  double name(double x) {                            \
    using Wide = long double;                        \
    return static_cast<double>(name##_of(Wide{x}));  \
  }
#define NPU_SPECIAL2(name)                                      \
  float name(float x, float y) {                                \
    return static_cast<float>(name##_of(double{x}, double{y})); \
  }                                                             \
  double name(double x, double y) {                             \
    using Wide = long double;                                   \
    return static_cast<double>(name##_of(Wide{x}, Wide{y}));    \
  }
#define NPU_SPECIAL1_IN_DOUBLE(name)                 \
  float name(float x) {                              \
    return static_cast<float>(name##_of(double{x})); \
  }                                                  \
  double name(double x) {                            \
    return name##_of(x);                             \
  }
#define NPU_SPECIAL2_IN_DOUBLE(name)                            \
  float name(float x, float y) {                                \
    return static_cast<float>(name##_of(double{x}, double{y})); \
  }                                                             \
  double name(double x, double y) {                             \
    return name##_of(x, y);                                     \
  }

}  // namespace npu::host

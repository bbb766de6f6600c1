// SPDX-License-Identifier: Apache-2.0
// Orthogonal polynomials, by their recurrences and in the argument's own type:
// a long recurrence means no more digits than its type has, and where it
// overflows is the type's too.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/special.h"
#include "kernels/special_wide.h"

namespace npu::host {
namespace {

using Degree = std::int64_t;

// The degree is truncated; what no integer holds counts as negative.
template <class T>
Degree degree_of(T degree) {
  constexpr T kLimit = T(9223372036854775808.0);  // 2^63
  return degree >= -kLimit && degree < kLimit ? static_cast<Degree>(degree)
                                              : -1;
}

// p(k + 1) = next(k, p(k), p(k - 1)) from p(0) = 1 and p(1) = first.
template <class T, class Next>
T recurrence(Degree degree, T first, Next next) {
  constexpr Degree kMostSteps = 1 << 24;  // bounds the time for absurd degrees
  if (degree < 1) {
    return degree < 0 ? T(0) : T(1);
  }
  const Degree last = std::min(degree, kMostSteps);
  T before = 1;
  T here = first;
  for (Degree k = 1; k < last && !std::isnan(here); ++k) {
    const T after = next(T(k), here, before);
    before = here;
    here = after;
  }
  return here;
}

template <class T>
T chebyshev_recurrence(T x, Degree degree, T first) {
  return recurrence(degree, first, [x](T, T here, T before) {
    return std::fma(x + x, here, -before);
  });
}

// At 1 and -1 both ends of a long recurrence are known.
template <class T>
T at_end(T x, Degree degree, T at_one, T at_minus_one) {
  return degree < 0        ? T(0)
         : x > 0           ? at_one
         : degree % 2 == 0 ? at_minus_one
                           : -at_minus_one;
}

// Inside (-1, 1) the high degrees, those above `low`, go by the angle.
template <class T>
bool use_angle(T x, Degree degree, Degree low) {
  return degree > low && std::abs(x) < 1;
}

template <class T>
T chebyshev_t_of(T x, Degree degree, Degree low) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, T(1), T(1));
  }
  if (use_angle(x, degree, low)) {
    return std::cos(T(degree) * std::acos(x));
  }
  return chebyshev_recurrence(x, degree, x);
}

template <class T>
T chebyshev_u_of(T x, Degree degree, Degree low) {
  const T next = T(degree) + 1;
  if (std::abs(x) == 1) {
    return at_end(x, degree, next, next);
  }
  if (use_angle(x, degree, low)) {
    const T angle = std::acos(x);
    return std::sin(next * angle) / std::sin(angle);
  }
  return chebyshev_recurrence(x, degree, x + x);
}

template <class T>
T chebyshev_v_of(T x, Degree degree, Degree low) {
  const T middle = T(degree) + T(0.5);
  if (std::abs(x) == 1) {
    return at_end(x, degree, T(1), 2 * middle);
  }
  if (use_angle(x, degree, low)) {
    const T angle = std::acos(x);
    return std::cos(middle * angle) / std::cos(angle / 2);
  }
  return chebyshev_recurrence(x, degree, x + x - 1);
}

template <class T>
T chebyshev_w_of(T x, Degree degree, Degree low) {
  const T middle = T(degree) + T(0.5);
  if (std::abs(x) == 1) {
    return at_end(x, degree, 2 * middle, T(1));
  }
  if (use_angle(x, degree, low)) {
    const T angle = std::acos(x);
    return std::sin(middle * angle) / std::sin(angle / 2);
  }
  return chebyshev_recurrence(x, degree, x + x + 1);
}

// Beyond this degree PyTorch gives NaN.
template <class T>
constexpr Degree kMostHermite = sizeof(T) == 4 ? 128 : 512;

template <class T>
T hermite_h_of(T x, Degree degree) {
  if (degree > kMostHermite<T>) {
    return kNan<T>;
  }
  return recurrence(degree, x + x, [x](T k, T here, T before) {
    return std::fma(x + x, here, -(2 * k * before));
  });
}

template <class T>
T hermite_he_of(T x, Degree degree) {
  if (degree > kMostHermite<T>) {
    return kNan<T>;
  }
  return recurrence(degree, x, [x](T k, T here, T before) {
    return std::fma(x, here, -(k * before));
  });
}

template <class T>
T laguerre_of(T x, Degree degree) {
  if (x == 0) {
    return degree < 0 ? T(0) : T(1);
  }
  return recurrence(degree, 1 - x, [x](T k, T here, T before) {
    return std::fma(2 * k + (1 - x), here, -(k * before)) / (k + 1);
  });
}

template <class T>
T legendre_of(T x, Degree degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, T(1), T(1));
  }
  return recurrence(degree, x, [x](T k, T here, T before) {
    return std::fma((2 * k + 1) * x, here, -(k * before)) / (k + 1);
  });
}

}  // namespace

#define NPU_POLYNOMIAL(name)           \
  float name(float x, float y) {       \
    return name##_of(x, degree_of(y)); \
  }                                    \
  double name(double x, double y) {    \
    return name##_of(x, degree_of(y)); \
  }
// PyTorch turns to the angle at other degrees where the argument is shifted.
#define NPU_CHEBYSHEV(name, low, shifted_low)               \
  float name(float x, float y) {                            \
    return name##_of(x, degree_of(y), low);                 \
  }                                                         \
  double name(double x, double y) {                         \
    return name##_of(x, degree_of(y), low);                 \
  }                                                         \
  float shifted_##name(float x, float y) {                  \
    return name##_of(x + x - 1, degree_of(y), shifted_low); \
  }                                                         \
  double shifted_##name(double x, double y) {               \
    return name##_of(x + x - 1, degree_of(y), shifted_low); \
  }

NPU_CHEBYSHEV(chebyshev_t, 6, 6)
NPU_CHEBYSHEV(chebyshev_u, 8, 6)
NPU_CHEBYSHEV(chebyshev_v, 8, 6)
NPU_CHEBYSHEV(chebyshev_w, 8, 4)
NPU_POLYNOMIAL(hermite_h)
NPU_POLYNOMIAL(hermite_he)
NPU_POLYNOMIAL(laguerre)
NPU_POLYNOMIAL(legendre)

}  // namespace npu::host

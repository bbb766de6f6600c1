// SPDX-License-Identifier: Apache-2.0
// Special functions, each written once for a type wider than its argument's.
#include "kernels/special.h"

#include <math.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace npu::host {
namespace {

template <class W>
constexpr W kPi = W(3.141592653589793238462643383279502884L);
template <class W>
constexpr W kEuler = W(0.577215664901532860606512090082402431L);
template <class W>
constexpr W kInf = std::numeric_limits<W>::infinity();
template <class W>
constexpr W kNan = std::numeric_limits<W>::quiet_NaN();
template <class W>
constexpr W kEps = std::numeric_limits<W>::epsilon();

// Bernoulli numbers B2, B4, ... B24.
template <class W>
constexpr W kBernoulli[] = {
    W(1) / 6,
    W(-1) / 30,
    W(1) / 42,
    W(-1) / 30,
    W(5) / 66,
    W(-691) / 2730,
    W(7) / 6,
    W(-3617) / 510,
    W(43867) / 798,
    W(-174611) / 330,
    W(854513) / 138,
    W(-236364091) / 2730};
constexpr int kBernoullis = 12;

// ---- gamma and zeta ----

template <class W>
W digamma_of(W x) {
  if (x == 0) {
    return std::copysign(kInf<W>, -x);
  }
  if (x < 0) {
    const W rest = x - std::trunc(x);
    return rest == 0 ? kNan<W>
                     : digamma_of(1 - x) - kPi<W> / std::tan(kPi<W> * rest);
  }
  W sum = 0;
  for (; x < 20; x += 1) {
    sum -= 1 / x;
  }
  if (std::isinf(x)) {
    return x;
  }
  const W square = 1 / (x * x);
  W power = square;
  for (int k = 0; k < kBernoullis; ++k, power *= square) {
    sum -= kBernoulli<W>[k] * power / (2 * (k + 1));
  }
  return sum + std::log(x) - W(0.5) / x;
}

// Euler and Maclaurin: some terms, then the integral with corrections.
template <class W>
W zeta_of(W s, W q) {
  if (s == 1) {
    return kInf<W>;
  }
  if (!(s > 1) || std::isnan(q)) {
    return kNan<W>;
  }
  if (q <= 0) {
    if (q == std::floor(q)) {
      return kInf<W>;
    }
    if (s != std::floor(s)) {
      return kNan<W>;
    }
  }
  constexpr int kMostTerms = 1 << 20;  // q far below zero
  W sum = 0;
  for (int k = 0; (k < 12 || q < 20) && k < kMostTerms; ++k, q += 1) {
    const W term = std::pow(q, -s);
    sum += term;
    if (q > 0 && term < sum * kEps<W> / 16) {
      return sum;
    }
  }
  W term = std::pow(q, -s);
  sum += term * q / (s - 1) + term / 2;
  W factor = s / 2;  // s (s + 1) ... / (2k)!
  term /= q;
  for (int k = 0; k < kBernoullis; ++k) {
    sum += kBernoulli<W>[k] * factor * term;
    factor *= (s + 2 * k + 1) / (2 * k + 3) * (s + 2 * k + 2) / (2 * k + 4);
    term /= q * q;
  }
  return sum;
}

// In the argument's own type and with few terms: gradients of digamma are
// compared with PyTorch's, which are no better.
template <class T>
T trigamma_in(T x) {
  constexpr int kSteps = 6;
  T sign = 1;
  T sum = 0;
  if (x < T(0.5)) {
    const T sine = std::sin(kPi<T> * x);
    sum = -(kPi<T> * kPi<T>) / (sine * sine);
    sign = -1;
    x = 1 - x;
  }
  for (int k = 0; k < kSteps; ++k, x += 1) {
    sum += 1 / (x * x);
  }
  const T square = 1 / (x * x);
  const T tail =
      1 + 1 / (2 * x) +
      square * (T(1) / 6 - square * (T(1) / 30 - square * (T(1) / 42)));
  return sign * (sum + tail / x);
}

template <class W>
W polygamma_of(W order, W x) {
  if (order == 0) {
    return digamma_of(x);
  }
  const W sign = std::fmod(order, W(2)) == 0 ? W(-1) : W(1);
  return sign * std::exp(std::lgamma(order + 1)) * zeta_of(order + 1, x);
}

// Both incomplete gammas: the series gives the lower, the fraction the upper.
template <class W>
W gamma_part(W a, W x, bool upper) {
  if (!(a >= 0) || !(x >= 0) || (a == 0 && x == 0)) {
    return kNan<W>;
  }
  if (std::isinf(a) && std::isinf(x)) {
    return kNan<W>;
  }
  if (a == 0 || std::isinf(x)) {
    return upper ? W(0) : W(1);
  }
  if (x == 0 || std::isinf(a)) {
    return upper ? W(1) : W(0);
  }
  constexpr int kMostTerms = 1000000;
  const W front = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1) {
    W term = 1 / a;
    W sum = term;
    for (int k = 1; k < kMostTerms && term > sum * kEps<W> / 4; ++k) {
      term *= x / (a + k);
      sum += term;
    }
    const W lower = sum * front;
    return upper ? 1 - lower : lower;
  }
  const W tiny = std::numeric_limits<W>::min() / kEps<W>;
  W b = x + 1 - a;
  W c = 1 / tiny;
  W d = 1 / b;
  W h = d;
  for (int k = 1; k < kMostTerms; ++k) {  // Lentz
    const W an = -k * (k - a);
    b += 2;
    d = an * d + b;
    d = 1 / (std::abs(d) < tiny ? tiny : d);
    c = b + an / c;
    c = std::abs(c) < tiny ? tiny : c;
    h *= d * c;
    if (std::abs(d * c - 1) < kEps<W>) {
      break;
    }
  }
  return upper ? front * h : 1 - front * h;
}

template <class W>
W igamma_of(W a, W x) {
  return gamma_part(a, x, false);
}
template <class W>
W igammac_of(W a, W x) {
  return gamma_part(a, x, true);
}

// lgamma writes a global; this form does not.
double log_gamma_of(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}
long double log_gamma_of(long double x) {
  int sign = 0;
  return ::lgammal_r(x, &sign);
}

// ---- error function ----

template <class W>
W erfcx_of(W x) {
  if (x < 0) {
    return 2 * std::exp(x * x) - erfcx_of(-x);
  }
  if (x < 3) {
    return std::exp(x * x) * std::erfc(x);
  }
  W fraction = x;
  for (int k = 80; k > 0; --k) {
    fraction = x + W(k) / 2 / fraction;
  }
  return 1 / (std::sqrt(kPi<W>) * fraction);
}

// z with erfc(z) = q, 0 < q <= 1: a guess, then Halley's steps.
template <class W>
W erfc_inverse(W q) {
  const W t = std::sqrt(-2 * std::log(q / 2));
  W z =
      (t - (W(2.515517) + t * (W(0.802853) + t * W(0.010328))) /
               (1 + t * (W(1.432788) + t * (W(0.189269) + t * W(0.001308))))) /
      std::sqrt(W(2));
  for (int k = 0; k < 4; ++k) {
    const W step = (std::erfc(z) - q) * std::sqrt(kPi<W>) / 2 * std::exp(z * z);
    z += step / (1 - z * step);
  }
  return z;
}

template <class W>
W erfinv_of(W x) {
  const W magnitude = std::abs(x);
  if (!(magnitude < 1)) {
    return magnitude == 1 ? std::copysign(kInf<W>, x) : kNan<W>;
  }
  if (magnitude >= W(0.5)) {
    return std::copysign(erfc_inverse(1 - magnitude), x);
  }
  W z = x * std::sqrt(kPi<W>) / 2 * (1 + x * x * kPi<W> / 12);
  for (int k = 0; k < 4; ++k) {
    const W step = (std::erf(z) - x) * std::sqrt(kPi<W>) / 2 * std::exp(z * z);
    z -= step / (1 + z * step);
  }
  return z;
}

template <class W>
W ndtri_of(W p) {
  if (!(p > 0 && p < 1)) {
    return p == 0 ? -kInf<W> : p == 1 ? kInf<W> : kNan<W>;
  }
  const W root = std::sqrt(W(2));
  return p < W(0.5) ? -root * erfc_inverse(2 * p)
                    : root * erfc_inverse(2 - 2 * p);
}

template <class W>
W log_ndtr_of(W x) {
  const W t = x / std::sqrt(W(2));
  return x < -1 ? std::log(erfcx_of(-t) / 2) - t * t
                : std::log1p(-std::erfc(t) / 2);
}

// ---- Bessel functions ----

// exp(-|x|) I_order(x), order 0 or 1.
template <class W>
W scaled_i(int order, W x) {
  const W magnitude = std::abs(x);
  if (std::isinf(magnitude)) {
    return std::copysign(W(0), x);
  }
  W term = 1;
  W sum = 1;
  if (magnitude <= 30) {
    const W quarter = magnitude * magnitude / 4;
    for (int k = 1; term > sum * kEps<W> / 4; ++k) {
      term *= quarter / (W(k) * (k + order));
      sum += term;
    }
    sum *= std::exp(-magnitude) * (order == 0 ? W(1) : magnitude / 2);
  } else {
    const W square = 4 * order * order;
    for (int k = 1; std::abs(term) > kEps<W> / 4 && k < 60; ++k) {
      const W odd = 2 * k - 1;
      term *= (odd * odd - square) / (8 * magnitude * k);
      sum += term;
    }
    sum /= std::sqrt(2 * kPi<W> * magnitude);
  }
  return order == 1 ? std::copysign(sum, x) : sum;
}

template <class W>
W bessel_i0e_of(W x) {
  return std::isnan(x) ? x : scaled_i(0, x);
}
template <class W>
W bessel_i1e_of(W x) {
  return std::isnan(x) ? x : scaled_i(1, x);
}
template <class W>
W bessel_i0_of(W x) {
  return std::isinf(x) ? kInf<W> : std::exp(std::abs(x)) * bessel_i0e_of(x);
}
template <class W>
W bessel_i1_of(W x) {
  return std::isinf(x) ? x : std::exp(std::abs(x)) * bessel_i1e_of(x);
}

// exp(x) K_order(x), x > 0: the integral of exp(-x (cosh t - 1)) cosh(order t)
// over t >= 0. The sum over a grid converges faster than any power of its step.
template <class W>
W scaled_k(W order, W x) {
  const W step = std::min(W(0.12), W(0.5) / std::sqrt(x));
  W sum = W(0.5);
  for (int k = 1; k < 20000; ++k) {
    const W half = std::sinh(k * step / 2);
    const W term =
        std::exp(-2 * x * half * half) * std::cosh(order * (k * step));
    sum += term;
    if (term < sum * kEps<W> / 16) {
      break;
    }
  }
  return sum * step;
}

template <class W>
W bessel_ke(int order, W x) {
  if (!(x > 0)) {
    return x == 0 ? kInf<W> : kNan<W>;
  }
  return std::isinf(x) ? W(0) : scaled_k(W(order), x);
}
template <class W>
W bessel_k0e_of(W x) {
  return bessel_ke(0, x);
}
template <class W>
W bessel_k1e_of(W x) {
  return bessel_ke(1, x);
}
template <class W>
W bessel_k0_of(W x) {
  return bessel_k0e_of(x) * (x > 0 ? std::exp(-x) : W(1));
}
template <class W>
W bessel_k1_of(W x) {
  return bessel_k1e_of(x) * (x > 0 ? std::exp(-x) : W(1));
}

double bessel_j0_of(double x) {
  return ::j0(x);
}
long double bessel_j0_of(long double x) {
  return ::j0l(x);
}
double bessel_j1_of(double x) {
  return ::j1(x);
}
long double bessel_j1_of(long double x) {
  return ::j1l(x);
}
double bessel_y0_of(double x) {
  return x < 0 ? kNan<double> : ::y0(x);
}
long double bessel_y0_of(long double x) {
  return x < 0 ? kNan<long double> : ::y0l(x);
}
double bessel_y1_of(double x) {
  return x < 0 ? kNan<double> : ::y1(x);
}
long double bessel_y1_of(long double x) {
  return x < 0 ? kNan<long double> : ::y1l(x);
}

template <class W>
W spherical_j0_of(W x) {
  return std::isinf(x) ? W(0) : x == 0 ? W(1) : std::sin(x) / x;
}

// Through Bessel functions of order 1/3; near zero by its own series.
template <class W>
W airy_ai_of(W x) {
  if (std::isnan(x) || std::isinf(x)) {
    return std::isnan(x) || x < 0 ? kNan<W> : W(0);
  }
  const W third = W(1) / 3;
  const W arc = 2 * third * std::abs(x) * std::sqrt(std::abs(x));
  if (std::abs(x) < 1) {
    const W cube = x * x * x;
    W f = 1;
    W g = x;
    W f_term = 1;
    W g_term = x;
    for (int k = 1; k < 40; ++k) {
      f_term *= cube / ((3 * k - 1) * (3 * k));
      g_term *= cube / ((3 * k) * (3 * k + 1));
      f += f_term;
      g += g_term;
    }
    return W(0.355028053887817239260063186004183177L) * f -
           W(0.258819403792806798405183560189203963L) * g;
  }
  if (x > 0) {
    return std::exp(-arc) * std::sqrt(x / 3) / kPi<W> * scaled_k(third, arc);
  }
  if (arc > 20) {  // the asymptotic form, alternating even and odd terms
    W even = 1;
    W odd = 0;
    W term = 1;
    for (int k = 1; k < 40; ++k) {
      const W next = term * (6 * k - 5) * (6 * k - 1) / (72 * k * arc);
      if (next >= term || next < kEps<W> / 16) {
        break;
      }
      term = next;
      const W sign = k % 4 < 2 ? W(1) : W(-1);
      (k % 2 == 0 ? even : odd) += sign * term;
    }
    const W angle = arc + kPi<W> / 4;
    return (std::sin(angle) * even - std::cos(angle) * odd) /
           (std::sqrt(kPi<W>) * std::sqrt(std::sqrt(-x)));
  }
  const W j = std::cyl_bessel_j(third, arc);
  const W y = std::cyl_neumann(third, arc);
  // J(1/3) + J(-1/3), with cos and sin of a third of pi.
  return std::sqrt(-x) * third * (j * W(1.5) - y * std::sqrt(W(3)) / 2);
}

// ---- orthogonal polynomials ----

// p(k + 1) = next(k, p(k), p(k - 1)) from p(0) = 1 and p(1) = first.
template <class W, class Next>
W recurrence(W degree, W first, Next next) {
  constexpr W kMostSteps = 1 << 24;  // a degree nobody means must not hang
  const auto n = static_cast<long>(std::min(degree, kMostSteps));
  if (!(degree >= 1)) {
    return degree <= -1 ? W(0) : W(1);
  }
  W before = 1;
  W here = first;
  for (long k = 1; k < n && !std::isnan(here); ++k) {
    const W after = next(W(k), here, before);
    before = here;
    here = after;
  }
  return here;
}

constexpr long kTrigonometric = 8;  // from this degree on, where |x| < 1

template <class W>
W whole(W degree) {
  return std::trunc(degree);
}

// At 1 and -1 both ends of a long recurrence are known.
template <class W>
W at_end(W x, W degree, W at_one, W at_minus_one) {
  const bool even = std::fmod(whole(degree), W(2)) == 0;
  return degree <= -1 ? W(0)
         : x > 0      ? at_one
         : even       ? at_minus_one
                      : -at_minus_one;
}

template <class W>
bool use_angle(W x, W degree) {
  return degree > kTrigonometric && std::abs(x) < 1;
}
template <class W>
W chebyshev_t_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, W(1), W(1));
  }
  if (use_angle(x, degree)) {
    return std::cos(whole(degree) * std::acos(x));
  }
  return recurrence(
      degree, x, [&](W, W here, W before) { return 2 * x * here - before; });
}
template <class W>
W chebyshev_u_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, whole(degree) + 1, whole(degree) + 1);
  }
  if (use_angle(x, degree)) {
    const W angle = std::acos(x);
    return std::sin((whole(degree) + 1) * angle) / std::sin(angle);
  }
  return recurrence(degree, 2 * x, [&](W, W here, W before) {
    return 2 * x * here - before;
  });
}
template <class W>
W chebyshev_v_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, W(1), 2 * whole(degree) + 1);
  }
  if (use_angle(x, degree)) {
    const W angle = std::acos(x);
    return std::cos((whole(degree) + W(0.5)) * angle) / std::cos(angle / 2);
  }
  return recurrence(degree, 2 * x - 1, [&](W, W here, W before) {
    return 2 * x * here - before;
  });
}
template <class W>
W chebyshev_w_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, 2 * whole(degree) + 1, W(1));
  }
  if (use_angle(x, degree)) {
    const W angle = std::acos(x);
    return std::sin((whole(degree) + W(0.5)) * angle) / std::sin(angle / 2);
  }
  return recurrence(degree, 2 * x + 1, [&](W, W here, W before) {
    return 2 * x * here - before;
  });
}
template <class W>
W hermite_h_of(W x, W degree) {
  return recurrence(degree, 2 * x, [&](W k, W here, W before) {
    return 2 * x * here - 2 * k * before;
  });
}
template <class W>
W hermite_he_of(W x, W degree) {
  return recurrence(
      degree, x, [&](W k, W here, W before) { return x * here - k * before; });
}
template <class W>
W laguerre_of(W x, W degree) {
  return recurrence(degree, 1 - x, [&](W k, W here, W before) {
    return ((2 * k + 1 - x) * here - k * before) / (k + 1);
  });
}
template <class W>
W legendre_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, W(1), W(1));
  }
  return recurrence(degree, x, [&](W k, W here, W before) {
    return ((2 * k + 1) * x * here - k * before) / (k + 1);
  });
}

}  // namespace

float trigamma(float x) {
  return trigamma_in(x);
}
double trigamma(double x) {
  return trigamma_in(x);
}

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

NPU_SPECIAL1(digamma)
NPU_SPECIAL1(log_gamma)
NPU_SPECIAL1(erfcx)
NPU_SPECIAL1(erfinv)
NPU_SPECIAL1(ndtri)
NPU_SPECIAL1(log_ndtr)
NPU_SPECIAL1(bessel_i0)
NPU_SPECIAL1(bessel_i0e)
NPU_SPECIAL1(bessel_i1)
NPU_SPECIAL1(bessel_i1e)
NPU_SPECIAL1(bessel_j0)
NPU_SPECIAL1(bessel_j1)
NPU_SPECIAL1(bessel_y0)
NPU_SPECIAL1(bessel_y1)
NPU_SPECIAL1(bessel_k0)
NPU_SPECIAL1(bessel_k1)
NPU_SPECIAL1(bessel_k0e)
NPU_SPECIAL1(bessel_k1e)
NPU_SPECIAL1(spherical_j0)
NPU_SPECIAL1(airy_ai)
NPU_SPECIAL2(zeta)
NPU_SPECIAL2(polygamma)
NPU_SPECIAL2(igamma)
NPU_SPECIAL2(igammac)
NPU_SPECIAL2(chebyshev_t)
NPU_SPECIAL2(chebyshev_u)
NPU_SPECIAL2(chebyshev_v)
NPU_SPECIAL2(chebyshev_w)
NPU_SPECIAL2(hermite_h)
NPU_SPECIAL2(hermite_he)
NPU_SPECIAL2(laguerre)
NPU_SPECIAL2(legendre)

}  // namespace npu::host

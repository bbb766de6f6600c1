// SPDX-License-Identifier: Apache-2.0
// Gamma, zeta, error and related functions, each written once for a type wider
// than its argument's.
#include <math.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/special.h"
#include "kernels/special_wide.h"

namespace npu::host {
namespace {

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

// lgamma writes a global; this form does not.
double log_gamma_of(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}
long double log_gamma_of(long double x) {
  int sign = 0;
  return ::lgammal_r(x, &sign);
}

double digamma_of(double x) {
  if (x == 0) {
    return std::copysign(kInf<double>, -x);
  }
  if (x < 0) {
    const double rest = x - std::trunc(x);
    return rest == 0
               ? kNan<double>
               : digamma_of(1 - x) - kPi<double> / std::tan(kPi<double> * rest);
  }
  double sum = 0;
  for (; x < 10; x += 1) {
    sum -= 1 / x;
  }
  if (std::isinf(x)) {
    return x;
  }
  const double square = 1 / (x * x);
  double tail = 0;
  for (int k = 7; k-- > 0;) {
    tail = (tail + kBernoulli<double>[k] / (2 * (k + 1))) * square;
  }
  return sum + std::log(x) - 0.5 / x - tail;
}

// Euler and Maclaurin: some terms, then the integral with corrections.
double zeta_above(double s, double q) {
  double sum = std::pow(q, -s);
  double term = sum;
  for (int k = 0; k < 9 || q <= 9; ++k) {
    q += 1;
    term = std::pow(q, -s);
    sum += term;
    if (std::abs(term) < sum * kEps<double> / 2) {
      return sum;
    }
  }
  sum += term * q / (s - 1) - term / 2;
  double rising = 1;     // s (s + 1) ..., which may overflow
  double factorial = 1;  // (2k)!
  for (int k = 0; k < kBernoullis; ++k) {
    rising *= s + 2 * k;
    term /= q;
    factorial *= (2 * k + 1) * (2 * k + 2);
    const double part = rising * term * (kBernoulli<double>[k] / factorial);
    sum += part;
    if (std::abs(part) < std::abs(sum) * kEps<double> / 2) {
      break;
    }
    rising *= s + 2 * k + 1;
    term /= q;
  }
  return sum;
}

double zeta_of(double s, double q) {
  if (s == 1) {
    return kInf<double>;
  }
  if (s < 1) {
    return kNan<double>;
  }
  if (q <= 0) {
    if (q == std::floor(q)) {
      return kInf<double>;
    }
    if (s != std::floor(s)) {
      return kNan<double>;
    }
  }
  constexpr double kFar = -64;
  if (!(q < kFar)) {
    return zeta_above(s, q);
  }
  // The negative terms are those of a positive argument, from near zero to q.
  const double near = std::trunc(q) - q;
  const double far = 1 - q;
  const double beyond = std::pow(far, -s) == 0 ? 0.0 : zeta_above(s, far);
  const double sign = std::fmod(s, 2.0) == 0 ? 1 : -1;
  return zeta_above(s, 1 - near) + sign * (zeta_above(s, near) - beyond);
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

double polygamma_of(double order, double x) {
  if (order == 0) {
    return digamma_of(x);
  }
  const double sign = std::fmod(order, 2.0) == 0 ? -1 : 1;
  return sign * std::exp(log_gamma_of(order + 1)) * zeta_of(order + 1, x);
}

// x - log(1 + x), which is nearly x * x / 2 where x is small.
template <class W>
W minus_log1p(W x) {
  if (std::abs(x) > W(0.2)) {
    return x - std::log1p(x);
  }
  W power = x * x;
  W sum = power / 2;
  for (int k = 3; std::abs(power) > std::abs(sum) * kEps<W>; ++k) {
    power *= -x;
    sum += power / k;
  }
  return sum;
}

template <class W, std::size_t kTerms>
W polynomial(const W (&terms)[kTerms], W x) {
  W sum = 0;
  for (std::size_t k = kTerms; k-- > 0;) {
    sum = sum * x + terms[k];
  }
  return sum;
}

// Both incomplete gammas for large a: Temme's expansion about x = a, beyond
// which they are 0 or 1 (DLMF 8.12).
template <class W>
W gamma_part_large(W a, W x, bool upper) {
  constexpr W kFirst[] = {
      W(-1) / 3,
      W(1) / 12,
      W(-2) / 135,
      W(1) / 864,
      W(1) / 2835,
      W(-139) / 777600,
      W(1) / 25515,
      W(-571) / 261273600};
  constexpr W kSecond[] = {
      W(-1) / 540, W(-1) / 288, W(1) / 378, W(-77) / 77760};
  constexpr W kThird[] = {W(25) / 6048, W(-139) / 51840};
  const W away = minus_log1p((x - a) / a);
  if (a * away > W(12000)) {  // exp of it underflows in every type
    return (x < a) == upper ? W(1) : W(0);
  }
  const W eta = std::copysign(std::sqrt(2 * away), x - a);
  const W half = std::erfc((upper ? eta : -eta) * std::sqrt(a / 2)) / 2;
  const W terms = polynomial(kFirst, eta) +
                  (polynomial(kSecond, eta) + polynomial(kThird, eta) / a) / a;
  const W rest = std::exp(-a * away) / std::sqrt(2 * kPi<W> * a) * terms;
  return upper ? half + rest : half - rest;
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
  if (a > W(1e5)) {
    return gamma_part_large(a, x, upper);
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

}  // namespace

float trigamma(float x) {
  return trigamma_in(x);
}
double trigamma(double x) {
  return trigamma_in(x);
}

NPU_SPECIAL1_IN_DOUBLE(digamma)
NPU_SPECIAL1(log_gamma)
NPU_SPECIAL1(erfcx)
NPU_SPECIAL1(erfinv)
NPU_SPECIAL1(ndtri)
NPU_SPECIAL1(log_ndtr)
NPU_SPECIAL2_IN_DOUBLE(zeta)
NPU_SPECIAL2_IN_DOUBLE(polygamma)
NPU_SPECIAL2(igamma)
NPU_SPECIAL2(igammac)

}  // namespace npu::host

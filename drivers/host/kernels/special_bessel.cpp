// SPDX-License-Identifier: Apache-2.0
// Bessel and Airy functions.
#include <math.h>

#include <cmath>

#include "kernels/special.h"
#include "kernels/special_wide.h"

namespace npu::host {
namespace {

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
// Of infinity: no number, infinity times zero, as PyTorch has it.
template <class W>
W bessel_i0_of(W x) {
  return std::exp(std::abs(x)) * bessel_i0e_of(x);
}
template <class W>
W bessel_i1_of(W x) {
  return std::exp(std::abs(x)) * bessel_i1e_of(x);
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

double c_function(double x, double (*f)(double), long double (*)(long double)) {
  return f(x);
}
long double c_function(
    long double x, double (*)(double), long double (*f)(long double)) {
  return f(x);
}
// PyTorch has no number for them at infinity.
template <class W>
W bessel_j0_of(W x) {
  return std::isinf(x) ? kNan<W> : c_function(x, ::j0, ::j0l);
}
template <class W>
W bessel_j1_of(W x) {
  return std::isinf(x) ? kNan<W> : c_function(x, ::j1, ::j1l);
}
template <class W>
W bessel_y0_of(W x) {
  return x < 0 || std::isinf(x) ? kNan<W> : c_function(x, ::y0, ::y0l);
}
template <class W>
W bessel_y1_of(W x) {
  return x < 0 || std::isinf(x) ? kNan<W> : c_function(x, ::y1, ::y1l);
}

template <class W>
W spherical_j0_of(W x) {
  return std::isinf(x) ? W(0) : x == 0 ? W(1) : std::sin(x) / x;
}

// Through Bessel functions of order 1/3; near zero by its own series.
template <class W>
W airy_ai_of(W x) {
  if (!std::isfinite(x)) {  // as PyTorch has it, also for +infinity
    return kNan<W>;
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

}  // namespace

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

}  // namespace npu::host

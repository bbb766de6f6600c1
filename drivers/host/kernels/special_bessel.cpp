// SPDX-License-Identifier: Apache-2.0
// Bessel and Airy functions.
#include <math.h>

#include <cmath>
#include <cstddef>

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
// NaN at infinity (infinity times zero), as in PyTorch.
template <class W>
W bessel_i0_of(W x) {
  return std::exp(std::abs(x)) * bessel_i0e_of(x);
}
template <class W>
W bessel_i1_of(W x) {
  return std::exp(std::abs(x)) * bessel_i1e_of(x);
}

// Chebyshev coefficients of the Cephes library, the highest degree first:
// exp(-x) I0(x) over [0, 8] and K0(x) + log(x / 2) I0(x) over [0, 2].
constexpr double kSeriesI0[] = {
    -4.41534164647933937950e-18, 3.33079451882223809783e-17,
    -2.43127984654795469359e-16, 1.71539128555513303061e-15,
    -1.16853328779934516808e-14, 7.67618549860493561688e-14,
    -4.85644678311192946090e-13, 2.95505266312963983461e-12,
    -1.72682629144155570723e-11, 9.67580903537323691224e-11,
    -5.18979560163526290666e-10, 2.65982372468238665035e-09,
    -1.30002500998624804212e-08, 6.04699502254191894932e-08,
    -2.67079385394061173391e-07, 1.11738753912010371815e-06,
    -4.41673835845875056359e-06, 1.64484480707288970893e-05,
    -5.75419501008210370398e-05, 1.88502885095841655729e-04,
    -5.76375574538582365885e-04, 1.63947561694133579842e-03,
    -4.32430999505057594430e-03, 1.05464603945949983183e-02,
    -2.37374148058994688156e-02, 4.93052842396707084878e-02,
    -9.49010970480476444210e-02, 1.71620901522208775349e-01,
    -3.04682672343198398683e-01, 6.76795274409476084995e-01,
};
constexpr double kSeriesK0[] = {
    1.37446543561352307156e-16,
    4.25981614279661018399e-14,
    1.03496952576338420167e-11,
    1.90451637722020886025e-09,
    2.53479107902614945675e-07,
    2.28621210311945178607e-05,
    1.26461541144692592338e-03,
    3.59799365153615016266e-02,
    3.44289899924628486886e-01,
    -5.35327393233902768720e-01,
};

// Clenshaw's sum; the argument, 2 t with t in [-1, 1].
template <std::size_t kTerms>
double chebyshev_sum(const double (&terms)[kTerms], double twice) {
  double here = 0;
  double before = 0;
  double oldest = 0;
  for (const double term : terms) {
    oldest = before;
    before = here;
    here = std::fma(twice, before, -oldest) + term;
  }
  return (here - oldest) / 2;
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
// Near zero by PyTorch's series: a better one differs from its float64 answer
// by more than rounding may.
double bessel_k0_of(double x) {
  if (x > 0 && x <= 2) {
    const double i0 = std::exp(x) * chebyshev_sum(kSeriesI0, x / 2 - 2);
    return chebyshev_sum(kSeriesK0, x * x - 2) - std::log(x / 2) * i0;
  }
  const auto wide = static_cast<long double>(x);
  const long double scale = x > 0 ? std::exp(-wide) : 1.0L;
  return static_cast<double>(bessel_k0e_of(wide) * scale);
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
// NaN at infinity, as in PyTorch.
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
  if (!std::isfinite(x)) {  // as in PyTorch, also for +infinity
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
NPU_SPECIAL1_IN_DOUBLE(bessel_k0)
NPU_SPECIAL1(bessel_k1)
NPU_SPECIAL1(bessel_k0e)
NPU_SPECIAL1(bessel_k1e)
NPU_SPECIAL1(spherical_j0)
NPU_SPECIAL1(airy_ai)

}  // namespace npu::host

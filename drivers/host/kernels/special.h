// SPDX-License-Identifier: Apache-2.0
// Special functions: float computed through double, double through long double,
// so that series and integrals written plainly are right to the last bits.
// Polynomials are computed in the type they are asked for.
#pragma once

namespace npu::host {

#define NPU_SPECIAL1(name) \
  float name(float x);     \
  double name(double x);
#define NPU_SPECIAL2(name)      \
  float name(float x, float y); \
  double name(double x, double y);

NPU_SPECIAL1(digamma)
NPU_SPECIAL1(trigamma)
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
NPU_SPECIAL2(zeta)         // Hurwitz: sum over k >= 0 of (y + k)^-x
NPU_SPECIAL2(polygamma)    // of order x
NPU_SPECIAL2(igamma)       // regularized lower incomplete gamma, a = x
NPU_SPECIAL2(igammac)      // regularized upper
NPU_SPECIAL2(chebyshev_t)  // degree y, truncated, here and below
NPU_SPECIAL2(chebyshev_u)
NPU_SPECIAL2(chebyshev_v)
NPU_SPECIAL2(chebyshev_w)
NPU_SPECIAL2(shifted_chebyshev_t)  // of 2 x - 1
NPU_SPECIAL2(shifted_chebyshev_u)
NPU_SPECIAL2(shifted_chebyshev_v)
NPU_SPECIAL2(shifted_chebyshev_w)
NPU_SPECIAL2(hermite_h)
NPU_SPECIAL2(hermite_he)
NPU_SPECIAL2(laguerre)
NPU_SPECIAL2(legendre)

#undef NPU_SPECIAL1
#undef NPU_SPECIAL2

}  // namespace npu::host

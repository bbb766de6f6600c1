// SPDX-License-Identifier: Apache-2.0
// Kinds unary and binary: special functions and polynomials (special.h).
#include "kernels/map.h"
#include "kernels/special.h"
#include "shared/map_math.h"

namespace npu::host {
namespace {

template <class T>
T entropy(T x) {
  const T least = -std::numeric_limits<T>::infinity();
  return x > 0 ? -x * std::log(x) : x == 0 ? T(0) : x < 0 ? least : x;
}

NPU_MAP1(Erf, std::erf(x))
NPU_MAP1(Erfc, std::erfc(x))
NPU_MAP1(Erfcx, erfcx(x))
NPU_MAP1(Erfinv, erfinv(x))
NPU_MAP1(Ndtri, ndtri(x))
NPU_MAP1(LogNdtr, log_ndtr(x))
NPU_MAP1(Entr, entropy(x))
NPU_MAP1(Lgamma, log_gamma(x))
NPU_MAP1(Digamma, digamma(x))
NPU_MAP1(Trigamma, trigamma(x))
NPU_MAP1(I0, bessel_i0(x))
NPU_MAP1(I0e, bessel_i0e(x))
NPU_MAP1(I1, bessel_i1(x))
NPU_MAP1(I1e, bessel_i1e(x))
NPU_MAP1(J0, bessel_j0(x))
NPU_MAP1(J1, bessel_j1(x))
NPU_MAP1(Y0, bessel_y0(x))
NPU_MAP1(Y1, bessel_y1(x))
NPU_MAP1(K0, bessel_k0(x))
NPU_MAP1(K1, bessel_k1(x))
NPU_MAP1(K0e, bessel_k0e(x))
NPU_MAP1(K1e, bessel_k1e(x))
NPU_MAP1(SphericalJ0, spherical_j0(x))
NPU_MAP1(AiryAi, airy_ai(x))
NPU_MAP2(Zeta, zeta(x, y))
NPU_MAP2(Igamma, igamma(x, y))
NPU_MAP2(Igammac, igammac(x, y))
NPU_MAP2(ChebyshevT, chebyshev_t(x, y))
NPU_MAP2(ChebyshevU, chebyshev_u(x, y))
NPU_MAP2(ChebyshevV, chebyshev_v(x, y))
NPU_MAP2(ChebyshevW, chebyshev_w(x, y))
NPU_MAP2(ShiftedT, shifted_chebyshev_t(x, y))
NPU_MAP2(ShiftedU, shifted_chebyshev_u(x, y))
NPU_MAP2(ShiftedV, shifted_chebyshev_v(x, y))
NPU_MAP2(ShiftedW, shifted_chebyshev_w(x, y))
NPU_MAP2(HermiteH, hermite_h(x, y))
NPU_MAP2(HermiteHe, hermite_he(x, y))
NPU_MAP2(Laguerre, laguerre(x, y))
NPU_MAP2(Legendre, legendre(x, y))

constexpr std::uint64_t kAll = kFloatBits | kPromotes;
constexpr std::uint64_t kWide = kWideBits | kPromotes;

constexpr MapRow kUnary[] = {
    map_row<NPU_UNARY_ERF, Erf, kAll>(),
    map_row<NPU_UNARY_ERFC, Erfc, kAll>(),
    map_row<NPU_UNARY_ERFCX, Erfcx, kWide>(),
    map_row<NPU_UNARY_ERFINV, Erfinv, kAll>(),
    map_row<NPU_UNARY_NDTRI, Ndtri, kWide>(),
    map_row<NPU_UNARY_LOG_NDTR, LogNdtr, kWide>(),
    map_row<NPU_UNARY_ENTR, Entr, kAll>(),
    map_row<NPU_UNARY_LGAMMA, Lgamma, kAll>(),
    map_row<NPU_UNARY_DIGAMMA, Digamma, kAll>(),
    map_row<NPU_UNARY_TRIGAMMA, Trigamma, kAll>(),
    map_row<NPU_UNARY_I0, I0, kAll>(),
    map_row<NPU_UNARY_I0E, I0e, kAll>(),
    map_row<NPU_UNARY_I1, I1, kAll>(),
    map_row<NPU_UNARY_I1E, I1e, kAll>(),
    map_row<NPU_UNARY_BESSEL_J0, J0, kWide>(),
    map_row<NPU_UNARY_BESSEL_J1, J1, kWide>(),
    map_row<NPU_UNARY_BESSEL_Y0, Y0, kWide>(),
    map_row<NPU_UNARY_BESSEL_Y1, Y1, kWide>(),
    map_row<NPU_UNARY_MODIFIED_BESSEL_I0, I0, kWide>(),
    map_row<NPU_UNARY_MODIFIED_BESSEL_I1, I1, kWide>(),
    map_row<NPU_UNARY_MODIFIED_BESSEL_K0, K0, kWide>(),
    map_row<NPU_UNARY_MODIFIED_BESSEL_K1, K1, kWide>(),
    map_row<NPU_UNARY_SCALED_MODIFIED_BESSEL_K0, K0e, kWide>(),
    map_row<NPU_UNARY_SCALED_MODIFIED_BESSEL_K1, K1e, kWide>(),
    map_row<NPU_UNARY_SPHERICAL_BESSEL_J0, SphericalJ0, kWide>(),
    map_row<NPU_UNARY_AIRY_AI, AiryAi, kWide>(),
};

constexpr MapRow kBinary[] = {
    map_row<NPU_BINARY_ZETA, Zeta, kWide>(),
    map_row<NPU_BINARY_IGAMMA, Igamma, kFloatBits>(),
    map_row<NPU_BINARY_IGAMMAC, Igammac, kFloatBits>(),
    map_row<NPU_BINARY_CHEBYSHEV_POLYNOMIAL_T, ChebyshevT, kWide>(),
    map_row<NPU_BINARY_CHEBYSHEV_POLYNOMIAL_U, ChebyshevU, kWide>(),
    map_row<NPU_BINARY_CHEBYSHEV_POLYNOMIAL_V, ChebyshevV, kWide>(),
    map_row<NPU_BINARY_CHEBYSHEV_POLYNOMIAL_W, ChebyshevW, kWide>(),
    map_row<NPU_BINARY_SHIFTED_CHEBYSHEV_POLYNOMIAL_T, ShiftedT, kWide>(),
    map_row<NPU_BINARY_SHIFTED_CHEBYSHEV_POLYNOMIAL_U, ShiftedU, kWide>(),
    map_row<NPU_BINARY_SHIFTED_CHEBYSHEV_POLYNOMIAL_V, ShiftedV, kWide>(),
    map_row<NPU_BINARY_SHIFTED_CHEBYSHEV_POLYNOMIAL_W, ShiftedW, kWide>(),
    map_row<NPU_BINARY_HERMITE_POLYNOMIAL_H, HermiteH, kWide>(),
    map_row<NPU_BINARY_HERMITE_POLYNOMIAL_HE, HermiteHe, kWide>(),
    map_row<NPU_BINARY_LAGUERRE_POLYNOMIAL_L, Laguerre, kWide>(),
    map_row<NPU_BINARY_LEGENDRE_POLYNOMIAL_P, Legendre, kWide>(),
};

}  // namespace

const std::span<const MapRow> kUnarySpecial = kUnary;
const std::span<const MapRow> kBinarySpecial = kBinary;

}  // namespace npu::host

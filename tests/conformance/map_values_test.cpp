// SPDX-License-Identifier: Apache-2.0
// Elementwise kinds at places where the answer is known: identities of special
// functions, the standard library's own, and the corners of integers.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "kit.h"

namespace npu::kit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kEuler = 0.57721566490153286061;
constexpr double kPi = 3.14159265358979323846;

template <class T>
constexpr npu_dtype kDtype = NPU_ABSENT;
template <>
constexpr npu_dtype kDtype<double> = NPU_F64;
template <>
constexpr npu_dtype kDtype<std::int64_t> = NPU_I64;
template <>
constexpr npu_dtype kDtype<std::int32_t> = NPU_I32;
template <>
constexpr npu_dtype kDtype<std::int16_t> = NPU_I16;
template <>
constexpr npu_dtype kDtype<std::int8_t> = NPU_I8;

bool takes(std::uint32_t slot, std::uint32_t code, npu_dtype dtype, int n_in) {
  npu_op_caps caps;
  if (!declares(slot, code, &caps)) {
    return false;
  }
  const npu_kind_info& kind = *npu_kind_of(slot);
  for (int i = 0; i < n_in; ++i) {
    const auto place = kind.n_out + static_cast<std::size_t>(i);
    if (!has(taken_dtypes(kind, caps, place), dtype)) {
      return false;
    }
  }
  return has(caps.dtypes[0], dtype);
}

std::vector<double> unary(std::uint32_t code, const std::vector<double>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  Buffer in(x);
  Buffer out(x.size() * sizeof(double));
  Frame frame(NPU_KIND_UNARY, code);
  frame.out(out, flat(NPU_F64, n)).absent_out().in(in, flat(NPU_F64, n));
  NPU_EXPECT_OK(frame.run());
  return out.get_as<double>();
}

template <class T>
std::vector<T> binary(
    std::uint32_t code, const std::vector<T>& x, const std::vector<T>& y) {
  const auto n = static_cast<std::int64_t>(x.size());
  Buffer in(x);
  Buffer other(y);
  Buffer out(x.size() * sizeof(T));
  Frame frame(NPU_KIND_BINARY, code);
  frame.out(out, flat(kDtype<T>, n))
      .in(in, flat(kDtype<T>, n))
      .in(other, flat(kDtype<T>, n))
      .attrs(npu_binary_attrs{});
  NPU_EXPECT_OK(frame.run());
  return out.template get_as<T>();
}

// Relative error, absolute near zero.
void expect_near(double got, double expected, double tolerance) {
  if (std::isnan(expected) || std::isinf(expected)) {
    EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
        << got << " instead of " << expected;
    return;
  }
  EXPECT_LE(
      std::abs(got - expected), tolerance * std::max(1e-3, std::abs(expected)))
      << got << " instead of " << expected;
}

struct Known {
  std::uint32_t code;
  double x;
  double value;
};

TEST(map, KnownValuesOfSpecialFunctions) {
  const Known known[] = {
      {NPU_UNARY_DIGAMMA, 1, -kEuler},
      {NPU_UNARY_DIGAMMA, 0.5, -kEuler - 2 * std::log(2.0)},
      {NPU_UNARY_DIGAMMA, -1, std::nan("")},
      {NPU_UNARY_ERFINV, 1, kInf},
      {NPU_UNARY_ERFINV, std::erf(1.25), 1.25},
      {NPU_UNARY_ERFINV, std::erf(-0.1), -0.1},
      {NPU_UNARY_NDTRI, 0.975, 1.9599639845400542},
      {NPU_UNARY_NDTRI, 0, -kInf},
      {NPU_UNARY_ERFCX, 1, std::exp(1.0) * std::erfc(1.0)},
      {NPU_UNARY_ERFCX, 10, 0.056140992743822585},
      {NPU_UNARY_LOG_NDTR, -40, -804.6084420137538},
      {NPU_UNARY_ENTR, 0, 0},
      {NPU_UNARY_ENTR, -1, -kInf},
      {NPU_UNARY_SINC, 0.5, 2 / kPi},
      {NPU_UNARY_SPHERICAL_BESSEL_J0, 0, 1},
      {NPU_UNARY_AIRY_AI, 0, 0.35502805388781723926},
      {NPU_UNARY_AIRY_AI, 1, 0.13529241631288141552},
      {NPU_UNARY_AIRY_AI, -5, 0.35076100902411431978},
      {NPU_UNARY_AIRY_AI, -20, -0.17640612707798469},
  };
  for (const Known& row : known) {
    if (takes(NPU_KIND_UNARY, row.code, NPU_F64, 1)) {
      SCOPED_TRACE(npu_code_name(NPU_KIND_UNARY, row.code));
      expect_near(unary(row.code, {row.x})[0], row.value, 1e-13);
    }
  }
}

TEST(map, BesselFunctionsAsTheStandardLibraryHasThem) {
  using Function = std::function<double(double)>;
  const std::pair<std::uint32_t, Function> functions[] = {
      {NPU_UNARY_BESSEL_J0, [](double x) { return std::cyl_bessel_j(0, x); }},
      {NPU_UNARY_BESSEL_J1, [](double x) { return std::cyl_bessel_j(1, x); }},
      {NPU_UNARY_BESSEL_Y0, [](double x) { return std::cyl_neumann(0, x); }},
      {NPU_UNARY_BESSEL_Y1, [](double x) { return std::cyl_neumann(1, x); }},
      {NPU_UNARY_I0, [](double x) { return std::cyl_bessel_i(0, x); }},
      {NPU_UNARY_I1, [](double x) { return std::cyl_bessel_i(1, x); }},
      {NPU_UNARY_MODIFIED_BESSEL_K0,
       [](double x) { return std::cyl_bessel_k(0, x); }},
      {NPU_UNARY_MODIFIED_BESSEL_K1,
       [](double x) { return std::cyl_bessel_k(1, x); }},
      {NPU_UNARY_I0E,
       [](double x) { return std::exp(-x) * std::cyl_bessel_i(0, x); }},
  };
  const std::vector<double> points = {0.01, 0.5, 1, 2.5, 7, 19, 31, 60};
  for (const auto& [code, function] : functions) {
    if (!takes(NPU_KIND_UNARY, code, NPU_F64, 1)) {
      continue;
    }
    SCOPED_TRACE(npu_code_name(NPU_KIND_UNARY, code));
    const std::vector<double> got = unary(code, points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      expect_near(got[i], function(points[i]), 1e-11);
    }
  }
}

TEST(map, IncompleteGammasAddUp) {
  if (!takes(NPU_KIND_BINARY, NPU_BINARY_IGAMMA, NPU_F64, 2) ||
      !takes(NPU_KIND_BINARY, NPU_BINARY_IGAMMAC, NPU_F64, 2)) {
    NPU_NOT_DECLARED("incomplete gamma functions of float64");
  }
  const std::vector<double> a = {0.5, 1, 1, 3, 10, 200, 1e4};
  const std::vector<double> x = {0.2, 0.7, 30, 2, 12, 190, 1e4};
  const auto lower = binary<double>(NPU_BINARY_IGAMMA, a, x);
  const auto upper = binary<double>(NPU_BINARY_IGAMMAC, a, x);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(lower[i] + upper[i], 1, 1e-14) << a[i] << ", " << x[i];
  }
  expect_near(lower[1], -std::expm1(-0.7), 1e-14);
  expect_near(upper[2], std::exp(-30.0), 1e-13);
}

TEST(map, PolynomialsAsTheStandardLibraryHasThem) {
  for (int n = 0; n < 14; ++n) {
    const double degree = n;
    const auto order = static_cast<unsigned>(n);
    for (const double x : {-0.9, -0.2, 0.0, 0.3, 1.0}) {
      if (takes(
              NPU_KIND_BINARY, NPU_BINARY_LEGENDRE_POLYNOMIAL_P, NPU_F64, 2)) {
        EXPECT_NEAR(
            binary<double>(NPU_BINARY_LEGENDRE_POLYNOMIAL_P, {x}, {degree})[0],
            std::legendre(order, x),
            1e-13);
      }
      if (takes(NPU_KIND_BINARY, NPU_BINARY_HERMITE_POLYNOMIAL_H, NPU_F64, 2)) {
        expect_near(
            binary<double>(NPU_BINARY_HERMITE_POLYNOMIAL_H, {x}, {degree})[0],
            std::hermite(order, x),
            1e-10);
      }
      if (takes(
              NPU_KIND_BINARY, NPU_BINARY_CHEBYSHEV_POLYNOMIAL_T, NPU_F64, 2)) {
        EXPECT_NEAR(
            binary<double>(NPU_BINARY_CHEBYSHEV_POLYNOMIAL_T, {x}, {degree})[0],
            std::cos(degree * std::acos(x)),
            1e-13);
      }
    }
  }
}

template <class T>
struct IntegerRow {
  std::uint32_t code;
  std::vector<T> x;
  std::vector<T> y;
  std::vector<T> expected;
};

// What is known of every signed integer dtype; the number of rows it has.
template <class T>
int check_integers() {
  constexpr T kLeast = std::numeric_limits<T>::min();
  constexpr T kMost = std::numeric_limits<T>::max();
  const std::vector<T> x = {7, -7, 7, -7, kLeast, 0};
  const std::vector<T> y = {2, 2, -2, -2, -1, 5};
  const IntegerRow<T> rows[] = {
      {NPU_BINARY_DIV_FLOOR, x, y, {3, -4, -4, 3, kLeast, 0}},
      {NPU_BINARY_DIV_TRUNC, x, y, {3, -3, -3, 3, kLeast, 0}},
      {NPU_BINARY_REMAINDER, x, y, {1, 1, -1, -1, 0, 0}},
      {NPU_BINARY_FMOD, x, y, {1, -1, 1, -1, 0, 0}},
      {NPU_BINARY_POW,
       {3, -1, -1, 2, 0},
       {4, -3, -2, -1, 0},
       {81, -1, 1, 0, 1}},
      {NPU_BINARY_SHIFT_RIGHT, {-8, -8, 8}, {1, 100, 100}, {-4, -1, 0}},
      {NPU_BINARY_ADD,
       {kMost, kLeast, kMost - 2},
       {1, -1, 1},
       {kLeast, kMost, kMost - 1}},
      {NPU_BINARY_SUB, {kLeast, kMost}, {1, 2}, {kMost, kMost - 2}},
      {NPU_BINARY_MUL, {kLeast, kMost}, {-1, -1}, {kLeast, kLeast + 1}},
      {NPU_BINARY_MAXIMUM, {kMost, kLeast}, {kMost - 1, 0}, {kMost, 0}},
  };
  int found = 0;
  for (const IntegerRow<T>& row : rows) {
    if (takes(NPU_KIND_BINARY, row.code, kDtype<T>, 2)) {
      ++found;
      EXPECT_EQ(binary<T>(row.code, row.x, row.y), row.expected)
          << npu_code_name(NPU_KIND_BINARY, row.code) << " of "
          << npu_dtype_name(kDtype<T>);
    }
  }
  return found;
}

TEST(map, IntegersWrapAndDivideAsTheyShould) {
  const int found =
      check_integers<std::int8_t>() + check_integers<std::int16_t>() +
      check_integers<std::int32_t>() + check_integers<std::int64_t>();
  if (found == 0) {
    NPU_NOT_DECLARED("integer arithmetic");
  }
}

TEST(map, ShiftsOfAllBitsAndMore) {
  if (!takes(NPU_KIND_BINARY, NPU_BINARY_SHIFT_LEFT, NPU_I64, 2)) {
    NPU_NOT_DECLARED("shift_left of int64");
  }
  using I = std::int64_t;
  EXPECT_EQ(
      binary<I>(NPU_BINARY_SHIFT_LEFT, {1, 1, 1}, {62, 64, -1}),
      (std::vector<I>{I{1} << 62, 0, 0}));
}

TEST(map, AnIntegerDividedByZeroIsAnError) {
  if (!takes(NPU_KIND_BINARY, NPU_BINARY_DIV_TRUNC, NPU_I64, 2)) {
    NPU_NOT_DECLARED("integer division");
  }
  Buffer x(std::vector<std::int64_t>(100, 1));
  std::vector<std::int64_t> zeros(100, 1);
  zeros[57] = 0;
  Buffer y(zeros);
  Buffer out(800);
  Frame frame(NPU_KIND_BINARY, NPU_BINARY_DIV_TRUNC);
  frame.out(out, flat(NPU_I64, 100))
      .in(x, flat(NPU_I64, 100))
      .in(y, flat(NPU_I64, 100))
      .attrs(npu_binary_attrs{});
  EXPECT_NE(frame.run(), NPU_OK);
  clear_error();
}

}  // namespace
}  // namespace npu::kit

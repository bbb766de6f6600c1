// SPDX-License-Identifier: Apache-2.0
// Distributions in float64, from double words; scalar, with the C library's
// functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "shared/inline.h"

namespace npu {

// 53 bits of double word i.
NPU_SHARED inline double wide_unit(
    const std::uint32_t* w, std::int64_t i) noexcept {
  const std::uint64_t bits =
      w[2 * i] | (static_cast<std::uint64_t>(w[2 * i + 1]) << 32);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// floor(p * 2^32); a probability that is none counts as the nearest that is.
NPU_SHARED inline std::uint64_t threshold(double p) noexcept {
  return p >= 1 ? std::uint64_t{1} << 32
                : static_cast<std::uint64_t>(p > 0 ? p * 0x1p32 : 0.0);
}

// n elements from 2n words (n rounded up to even for normal_f64).
using Draw64 =
    void (*)(const std::uint32_t* w, int n, double a, double b, double* out);

NPU_SHARED inline void uniform_f64(
    const std::uint32_t* w, int n, double from, double to, double* out) {
  const double range = to - from;
  for (int i = 0; i < n; ++i) {
    const double x = wide_unit(w, i) * range + from;
    out[i] = x == to ? from : x;
  }
}

// cos and sin of an angle in turns, 0 <= turns <= 1, reduced exactly.
NPU_SHARED inline void sincos_turns(
    double turns, double& sine, double& cosine) {
  const double quarters = 4 * turns;
  const int q = static_cast<int>(quarters + 0.5);
  const double angle = (quarters - q) * M_PI_2;
  const double s = std::sin(angle);
  const double c = std::cos(angle);
  const double table[4] = {s, c, -s, -c};
  sine = table[q & 3];
  cosine = table[(q + 1) & 3];
}

NPU_SHARED inline void normal_f64(
    const std::uint32_t* w, int n, double mean, double std, double* out) {
  for (int i = 0; i < n; i += 2) {
    const double u1 = wide_unit(w, i) + 0x1p-54;
    const double u2 = wide_unit(w, i + 1) + 0x1p-54;
    const double r = std::sqrt(-2 * std::log(u1));
    double s = 0;
    double c = 0;
    sincos_turns(u2, s, c);
    out[i] = r * c * std + mean;
    if (i + 1 < n) {
      out[i + 1] = r * s * std + mean;
    }
  }
}

NPU_SHARED inline void log_normal_f64(
    const std::uint32_t* w, int n, double mean, double std, double* out) {
  normal_f64(w, n, mean, std, out);
  for (int i = 0; i < n; ++i) {
    out[i] = std::exp(out[i]);
  }
}

NPU_SHARED inline void exponential_f64(
    const std::uint32_t* w, int n, double lambda, double least, double* out) {
  for (int i = 0; i < n; ++i) {
    const double e = std::fmax(-std::log1p(-wide_unit(w, i)), 0x1p-53);
    out[i] = std::fmax(e / lambda, least);
  }
}

NPU_SHARED inline void geometric_f64(
    const std::uint32_t* w, int n, double log_fail, double, double* out) {
  for (int i = 0; i < n; ++i) {
    const double x = std::log1p(-wide_unit(w, i)) / log_fail;
    out[i] = std::fmax(std::ceil(x), 1.0);
  }
}

NPU_SHARED inline void cauchy_f64(
    const std::uint32_t* w, int n, double median, double sigma, double* out) {
  for (int i = 0; i < n; ++i) {
    const double v = (wide_unit(w, i) - 0.5) + 0x1p-54;
    out[i] = std::tan(M_PI * v) * sigma + median;
  }
}

}  // namespace npu

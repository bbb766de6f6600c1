// SPDX-License-Identifier: Apache-2.0
// The random kinds that try until a candidate is accepted. Element i reads
// block low = B + attempt, high = i + 1, for at most 256 attempts; all in
// float64. Within a block: u = double word (0, 1), v = double word (2, 3), as
// 53 bits * 2^-53; w0..w3 as word * 2^-32 + 2^-33.
//
// poisson   lambda < 10: inversion of u, summing the probabilities from 0 up.
//           else: transformed rejection (Hoermann's PTRS) from u and v.
// gamma     Marsaglia and Tsang: normal from w0 and w1, test with w2. For
//           alpha < 1 a draw of alpha + 1 times w3 of its block to the power of
//           1 / alpha. At least the dtype's smallest normal number.
// binomial  count * prob < 10: inversion of u; else transformed rejection
//           (BTRS) from u and v; prob > 1/2 counts the failures instead.
#pragma once

#include <math.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "shared/philox.h"

namespace npu {
namespace reject {

inline constexpr std::uint64_t kAttempts = 256;  // 1024 words
inline constexpr double kInversionMean = 10;
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Attempt {
  PhiloxBlock block;

  NPU_SHARED Attempt(PhiloxStream stream, std::int64_t i, std::uint64_t attempt)
      : block(philox(
            stream.seed,
            stream.block + attempt,
            static_cast<std::uint64_t>(i) + 1)) {}

  NPU_SHARED double u() const {
    return wide(0);
  }
  NPU_SHARED double v() const {
    return wide(2);
  }
  NPU_SHARED double word(int j) const {
    return block.w[j] * 0x1p-32 + 0x1p-33;
  }

 private:
  NPU_SHARED double wide(int j) const {
    const std::uint64_t bits =
        block.w[j] | (std::uint64_t{block.w[j + 1]} << 32);
    return static_cast<double>(bits >> 11) * 0x1p-53;
  }
};

// std::lgamma writes a global.
NPU_SHARED inline double log_gamma(double x) {
#if defined(__CUDACC__)
  return ::lgamma(x);
#else
  int sign = 0;
  return ::lgamma_r(x, &sign);
#endif
}

// The k at which the sum of probabilities passes u. next(k) is the ratio of
// the probability of k to that of k - 1.
template <class Next>
NPU_SHARED double invert(double u, double first, double most, Next next) {
  double probability = first;
  double sum = first;
  double k = 0;
  while (u >= sum && k < most) {
    k += 1;
    probability *= next(k);
    if (sum + probability == sum) {
      break;
    }
    sum += probability;
  }
  return k;
}

NPU_SHARED inline double poisson_large(
    PhiloxStream stream, std::int64_t i, double lambda) {
  const double root = std::sqrt(lambda);
  const double log_lambda = std::log(lambda);
  const double b = 0.931 + 2.53 * root;
  const double a = -0.059 + 0.02483 * b;
  const double log_inverse_alpha = std::log(1.1239 + 1.1328 / (b - 3.4));
  const double inner = 0.9277 - 3.6224 / (b - 2);
  for (std::uint64_t n = 0; n < kAttempts; ++n) {
    const Attempt attempt(stream, i, n);
    const double u = attempt.u() - 0.5;
    const double v = attempt.v();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + lambda + 0.43);
    if (us >= 0.07 && v <= inner) {
      return k;
    }
    if (k < 0 || (us < 0.013 && v > us)) {
      continue;
    }
    if (std::log(v) + log_inverse_alpha - std::log(a / (us * us) + b) <=
        k * log_lambda - lambda - log_gamma(k + 1)) {
      return k;
    }
  }
  return std::floor(lambda);
}

NPU_SHARED inline double binomial_large(
    PhiloxStream stream, std::int64_t i, double count, double prob) {
  const double deviation = std::sqrt(count * prob * (1 - prob));
  const double b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * prob;
  const double c = count * prob + 0.5;
  const double inner = 0.92 - 4.2 / b;
  const double alpha = (2.83 + 5.1 / b) * deviation;
  const double log_odds = std::log(prob / (1 - prob));
  const double mode = std::floor((count + 1) * prob);
  const double at_mode = log_gamma(mode + 1) + log_gamma(count - mode + 1);
  for (std::uint64_t n = 0; n < kAttempts; ++n) {
    const Attempt attempt(stream, i, n);
    const double u = attempt.u() - 0.5;
    const double v = attempt.v();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + c);
    if (us >= 0.07 && v <= inner) {
      return k;
    }
    if (k < 0 || k > count) {
      continue;
    }
    if (std::log(v * alpha / (a / (us * us) + b)) <=
        at_mode - log_gamma(k + 1) - log_gamma(count - k + 1) +
            (k - mode) * log_odds) {
      return k;
    }
  }
  return mode;
}

// 0 < prob <= 1/2.
NPU_SHARED inline double binomial_half(
    PhiloxStream stream, std::int64_t i, double count, double prob) {
  if (count * prob >= kInversionMean) {
    return binomial_large(stream, i, count, prob);
  }
  const double odds = prob / (1 - prob);
  return invert(
      Attempt(stream, i, 0).u(),
      std::exp(count * std::log1p(-prob)),
      count,
      [=](double k) { return (count - k + 1) / k * odds; });
}

}  // namespace reject

NPU_SHARED inline double draw_poisson(
    PhiloxStream stream, std::int64_t i, double lambda) {
  if (!(lambda >= 0)) {
    return reject::kNan;
  }
  if (lambda == 0 || std::isinf(lambda)) {
    return lambda;
  }
  if (lambda >= reject::kInversionMean) {
    return reject::poisson_large(stream, i, lambda);
  }
  return reject::invert(
      reject::Attempt(stream, i, 0).u(),
      std::exp(-lambda),
      std::numeric_limits<double>::infinity(),
      [=](double k) { return lambda / k; });
}

NPU_SHARED inline double draw_gamma(
    PhiloxStream stream, std::int64_t i, double alpha) {
  if (!(alpha >= 0)) {
    return reject::kNan;
  }
  if (alpha == 0 || std::isinf(alpha)) {
    return alpha;
  }
  const bool boost = alpha < 1;
  const double d = (boost ? alpha + 1 : alpha) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (std::uint64_t n = 0; n < reject::kAttempts; ++n) {
    const reject::Attempt attempt(stream, i, n);
    const double x = std::sqrt(-2 * std::log(attempt.word(0))) *
                     std::cos(2 * M_PI * attempt.word(1));
    const double cube_root = 1 + c * x;
    if (cube_root <= 0) {
      continue;
    }
    const double v = cube_root * cube_root * cube_root;
    const double u = attempt.word(2);
    const double square = x * x;
    if (u < 1 - 0.0331 * square * square ||
        std::log(u) < 0.5 * square + d * (1 - v + std::log(v))) {
      return d * v * (boost ? std::pow(attempt.word(3), 1 / alpha) : 1.0);
    }
  }
  return d;
}

NPU_SHARED inline double draw_binomial(
    PhiloxStream stream, std::int64_t i, double count, double prob) {
  if (std::isnan(count) || std::isnan(prob)) {
    return reject::kNan;
  }
  if (count <= 0 || prob <= 0) {
    return 0;
  }
  if (prob >= 1 || std::isinf(count)) {
    return count;
  }
  return prob <= 0.5
             ? reject::binomial_half(stream, i, count, prob)
             : count - reject::binomial_half(stream, i, count, 1 - prob);
}

}  // namespace npu

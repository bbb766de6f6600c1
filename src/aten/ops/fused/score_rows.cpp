// SPDX-License-Identifier: Apache-2.0
#include "aten/ops/fused/score_rows.h"

#include <bit>
#include <limits>

// One function for each instruction set, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define NPU_EACH_ISA                                                   \
  [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), \
    gnu::optimize("O3")]]
#else
#define NPU_EACH_ISA
#endif
#define NPU_INLINE [[gnu::always_inline]] inline

namespace npu::fused {
namespace {

// Sums and maxima go by lanes, so that they vectorise without reordering.
constexpr std::int64_t kLanes = 32;

// exp of x <= 0, or a little more: 2^k * exp(rest), |rest| <= log(2) / 2, by
// the first eight terms of its series. Zero below float32's normal numbers.
NPU_INLINE float exp_below(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds
  const float shifted = x * 1.44269504f + kRound;
  const float k = shifted - kRound;
  const float rest = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  float sum = 1.0f / 5040;
  sum = sum * rest + 1.0f / 720;
  sum = sum * rest + 1.0f / 120;
  sum = sum * rest + 1.0f / 24;
  sum = sum * rest + 1.0f / 6;
  sum = sum * rest + 0.5f;
  sum = sum * rest + 1.0f;
  sum = sum * rest + 1.0f;
  const auto power = std::bit_cast<std::int32_t>(shifted) -
                     std::bit_cast<std::int32_t>(kRound);
  const float two = std::bit_cast<float>((power + 127) << 23);
  return x < -87.0f ? 0.0f : sum * two;
}

}  // namespace

NPU_EACH_ISA float row_largest(
    const float* x, float scale, std::int64_t n) noexcept {
  float lanes[kLanes];
  for (float& lane : lanes) {
    lane = -std::numeric_limits<float>::infinity();
  }
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const float value = x[i + j] * scale;
      lanes[j] = value > lanes[j] ? value : lanes[j];
    }
  }
  for (std::int64_t j = 0; i < n; ++i, ++j) {
    const float value = x[i] * scale;
    lanes[j] = value > lanes[j] ? value : lanes[j];
  }
  float most = lanes[0];
  for (const float lane : lanes) {
    most = lane > most ? lane : most;
  }
  return most;
}

NPU_EACH_ISA float row_exp(
    float* x, float scale, float shift, std::int64_t n) noexcept {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const float value = exp_below(x[i + j] * scale - shift);
      x[i + j] = value;
      lanes[j] += value;
    }
  }
  for (std::int64_t j = 0; i < n; ++i, ++j) {
    x[i] = exp_below(x[i] * scale - shift);
    lanes[j] += x[i];
  }
  float sum = 0;
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

NPU_EACH_ISA void row_slope(
    float* p,
    const float* grad,
    float along,
    float factor,
    std::int64_t n) noexcept {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    p[i] *= (grad[i] - along) * factor;
  }
}

NPU_EACH_ISA void row_scale(float* x, float factor, std::int64_t n) noexcept {
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] *= factor;
  }
}

NPU_EACH_ISA float row_dot(
    const float* x, const float* y, std::int64_t n) noexcept {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) {
      lanes[j] += x[i + j] * y[i + j];
    }
  }
  for (std::int64_t j = 0; i < n; ++i, ++j) {
    lanes[j] += x[i] * y[i];
  }
  float sum = 0;
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

}  // namespace npu::fused

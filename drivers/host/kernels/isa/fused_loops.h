// SPDX-License-Identifier: Apache-2.0
// Body of fused_<isa>.cpp, which define NPU_ISA. Calls nothing that the linker
// could share with code for another instruction set.
#include "kernels/isa/fused.h"
#include "shared/random_math.h"

#define NPU_FUSED_FN [[gnu::always_inline]] inline

namespace npu::host {
namespace {

NPU_FUSED_FN float logistic(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}

void swiglu(float* out, const float* a, const float* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = a[i] * logistic(a[i]) * b[i];
  }
}

void swiglu_grad(
    float* grad_a,
    float* grad_b,
    const float* grad,
    const float* a,
    const float* b,
    std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float s = logistic(a[i]);
    const float silu = a[i] * s;
    const float g = grad[i];
    grad_a[i] = g * b[i] * (s + silu * (1.0f - s));
    grad_b[i] = g * silu;
  }
}

// Within 2 ulp of 1: the fits are of erf(x) / x and of log(1 - erf(x)).
NPU_FUSED_FN float erf_f32(float x) {
  const float t = x < 0 ? -x : x;
  const float far = t > 4.0f ? 4.0f : t;
  float q = 1.86551709632e-4f;
  q = q * far + -2.94894594996e-3f;
  q = q * far + 2.18417071175e-2f;
  q = q * far + -1.03111456639e-1f;
  q = q * far + -6.38142486408e-1f;
  q = q * far + -1.12708892350e+0f;
  q = q * far + -3.41962342e-4f;
  const float large = 1.0f - exp_f32(q);
  const float s = x * x;
  float p = 7.88224685e-5f;
  p = p * s + -8.01877366e-4f;
  p = p * s + 5.18930178e-3f;
  p = p * s + -2.68543227e-2f;
  p = p * s + 1.12835973e-1f;
  p = p * s + -3.76126269e-1f;
  p = p * s + 1.28379166e-1f;
  const float small = x + x * p;
  return t < 1.0f ? small : (x < 0 ? -large : x != x ? x : large);
}

// GELU(x) = x * share(x), and the derivative of the share.
struct GeluErf {
  NPU_FUSED_FN static float share(float x) {
    return 0.5f * (1.0f + erf_f32(x * 0.707106781f));
  }
  NPU_FUSED_FN static float slope(float x, float /*share*/) {
    return 0.398942280f * exp_f32(-0.5f * x * x);
  }
};

struct GeluTanh {
  static constexpr float kFactor = 1.59576912f;  // 2 sqrt(2 / pi)
  static constexpr float kCube = 0.044715f;
  NPU_FUSED_FN static float share(float x) {
    return logistic(kFactor * (x + kCube * x * x * x));
  }
  NPU_FUSED_FN static float slope(float x, float share) {
    return share * (1.0f - share) * kFactor * (1.0f + 3.0f * kCube * x * x);
  }
};

template <class Gelu>
void geglu(
    float* out, float* gelu, const float* a, const float* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float y = a[i] * Gelu::share(a[i]);
    gelu[i] = y;
    out[i] = y * b[i];
  }
}

template <class Gelu>
void geglu_grad(
    float* grad_a,
    float* grad_b,
    const float* grad,
    const float* a,
    const float* b,
    const float* gelu,
    std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float share = Gelu::share(a[i]);
    grad_b[i] = grad[i] * gelu[i];
    grad_a[i] = grad[i] * b[i] * (share + a[i] * Gelu::slope(a[i], share));
  }
}

// Sums of term(i): lanes of float over a block, blocks in double, so that the
// error does not grow with the length and every instruction set has the same.
template <class Term>
NPU_FUSED_FN double sum_of(std::int64_t n, Term term) {
  constexpr std::int64_t kLanes = 16;
  constexpr std::int64_t kBlock = 512;
  double total = 0;
  std::int64_t i = 0;
  while (i + kLanes <= n) {
    float lanes[kLanes] = {};
    const std::int64_t end = i + kBlock < n ? i + kBlock : n;
    for (; i + kLanes <= end; i += kLanes) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < kLanes; ++j) {
        lanes[j] += term(i + j);
      }
    }
    for (std::int64_t j = 0; j < kLanes; ++j) {
      total += lanes[j];
    }
  }
  for (; i < n; ++i) {
    total += term(i);
  }
  return total;
}

double squares(const float* x, std::int64_t n) {
  return sum_of(n, [=](std::int64_t i) { return x[i] * x[i]; });
}

double add_squares(float* sum, const float* x, const float* y, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    sum[i] = x[i] + y[i];
  }
  return squares(sum, n);
}

void scale(
    float* out,
    const float* x,
    const float* weight,
    float factor,
    std::int64_t n) {
  if (weight == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = x[i] * factor;
    }
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = x[i] * factor * weight[i];
  }
}

double dot(
    const float* grad, const float* weight, const float* x, std::int64_t n) {
  if (weight == nullptr) {
    return sum_of(n, [=](std::int64_t i) { return grad[i] * x[i]; });
  }
  return sum_of(n, [=](std::int64_t i) { return grad[i] * weight[i] * x[i]; });
}

void rms_grad(
    float* out,
    const float* grad,
    const float* weight,
    const float* x,
    float factor,
    float along,
    std::int64_t n) {
  if (weight == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = grad[i] * factor - x[i] * along;
    }
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = grad[i] * weight[i] * factor - x[i] * along;
  }
}

void add_product(
    float* sum, const float* x, const float* y, float factor, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    sum[i] += x[i] * y[i] * factor;
  }
}

void add_scaled(float* sum, const float* x, float factor, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    sum[i] += x[i] * factor;
  }
}

void turn(
    float* out,
    const float* x,
    const float* a,
    const float* y,
    const float* b,
    float sign,
    std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = x[i] * a[i] + y[i] * b[i] * sign;
  }
}

void turn_pairs(
    float* out,
    const float* x,
    const float* cosines,
    const float* sines,
    bool back,
    std::int64_t n) {
  const std::int64_t partner = back ? 1 : 0;
  const float sign = back ? -1.0f : 1.0f;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float even = x[2 * i];
    const float odd = x[2 * i + 1];
    out[2 * i] = even * cosines[2 * i] - sign * odd * sines[2 * i + partner];
    out[2 * i + 1] =
        odd * cosines[2 * i + 1] + sign * even * sines[2 * i + 1 - partner];
  }
}

float largest(const float* x, const float* smooth, std::int64_t n) {
  float most = 0;
  const auto take = [&most](float value) {
    const float size = value < 0 ? -value : value;
    most = size > most || size != size ? size : most;
  };
  for (std::int64_t i = 0; i < n; ++i) {
    take(smooth == nullptr ? x[i] : x[i] * smooth[i]);
  }
  return most;
}

// Ties to even: adding and subtracting 1.5 * 2^23 rounds as the processor does,
// for what is left after the clamp.
void round(
    std::int8_t* out,
    const float* x,
    const float* smooth,
    float scale,
    float shift,
    float low,
    float high,
    std::int64_t n) {
  constexpr float kRound = 12582912.0f;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = smooth == nullptr ? x[i] : x[i] * smooth[i];
    float y = value / scale + shift;
    y = y < low ? low : y;
    y = y > high ? high : y;
    y = (y + kRound) - kRound;
    out[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(y));
  }
}

}  // namespace

namespace NPU_ISA {
extern const FusedTable kFused = {
    swiglu,
    swiglu_grad,
    {geglu<GeluErf>, geglu<GeluTanh>},
    {geglu_grad<GeluErf>, geglu_grad<GeluTanh>},
    squares,
    add_squares,
    scale,
    dot,
    rms_grad,
    add_product,
    add_scaled,
    turn,
    turn_pairs,
    largest,
    round};
}

}  // namespace npu::host

// SPDX-License-Identifier: Apache-2.0
// Loops over a row of attention scores, for the processor they run on.
#pragma once

#include <cstdint>

namespace npu::fused {

// The largest of x * scale; -inf of none. NaN may be passed over.
float row_largest(const float* x, float scale, std::int64_t n) noexcept;
// x = exp(x * scale - shift); their sum.
float row_exp(float* x, float scale, float shift, std::int64_t n) noexcept;
// p = p * (grad - along) * factor
void row_slope(
    float* p,
    const float* grad,
    float along,
    float factor,
    std::int64_t n) noexcept;
// x *= factor
void row_scale(float* x, float factor, std::int64_t n) noexcept;
// Sum of x * y.
float row_dot(const float* x, const float* y, std::int64_t n) noexcept;

}  // namespace npu::fused

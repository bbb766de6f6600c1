// SPDX-License-Identifier: Apache-2.0
// Rows of float32 for the fused kinds, one table per instruction set.
//
// Outputs never share memory with inputs, except where `out` is one of them
// element by element.
#pragma once

#include <cstdint>

namespace npu::host {

struct FusedTable {
  // out = silu(a) * b
  void (*swiglu)(float* out, const float* a, const float* b, std::int64_t n);
  void (*swiglu_grad)(
      float* grad_a,
      float* grad_b,
      const float* grad,
      const float* a,
      const float* b,
      std::int64_t n);
  // gelu = GELU(a), out = gelu * b; by code of the kind.
  void (*geglu[2])(
      float* out, float* gelu, const float* a, const float* b, std::int64_t n);
  void (*geglu_grad[2])(
      float* grad_a,
      float* grad_b,
      const float* grad,
      const float* a,
      const float* b,
      const float* gelu,
      std::int64_t n);
  // Sum of x * x.
  double (*squares)(const float* x, std::int64_t n);
  // sum = x + y; the sum of its squares.
  double (*add_squares)(
      float* sum, const float* x, const float* y, std::int64_t n);
  // out = x * factor * weight; weight may be null.
  void (*scale)(
      float* out,
      const float* x,
      const float* weight,
      float factor,
      std::int64_t n);
  // Sum of grad * weight * x; weight may be null.
  double (*dot)(
      const float* grad, const float* weight, const float* x, std::int64_t n);
  // out = grad * weight * factor - x * along; weight may be null.
  void (*rms_grad)(
      float* out,
      const float* grad,
      const float* weight,
      const float* x,
      float factor,
      float along,
      std::int64_t n);
  // sum += x * y * factor
  void (*add_product)(
      float* sum, const float* x, const float* y, float factor, std::int64_t n);
  // sum += x * factor
  void (*add_scaled)(float* sum, const float* x, float factor, std::int64_t n);
  // out = a * x + b * y * sign, the two halves of a rotation.
  void (*turn)(
      float* out,
      const float* x,
      const float* a,
      const float* y,
      const float* b,
      float sign,
      std::int64_t n);
  // The same for neighbours: pairs (x0, x1) of 2 * n elements. `back` turns the
  // other way, with the sines of the partner.
  void (*turn_pairs)(
      float* out,
      const float* x,
      const float* cosines,
      const float* sines,
      bool back,
      std::int64_t n);
  // Largest |x * smooth|; smooth may be null.
  float (*largest)(const float* x, const float* smooth, std::int64_t n);
  // round(x * smooth / scale + shift), clamped; smooth may be null.
  void (*round)(
      std::int8_t* out,
      const float* x,
      const float* smooth,
      float scale,
      float shift,
      float low,
      float high,
      std::int64_t n);
};

const FusedTable& fused_table() noexcept;  // for the ISA in use

namespace isa_baseline {
extern const FusedTable kFused;
}
namespace isa_avx2 {
extern const FusedTable kFused;
}
namespace isa_avx512 {
extern const FusedTable kFused;
}

}  // namespace npu::host

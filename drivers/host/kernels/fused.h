// SPDX-License-Identifier: Apache-2.0
// Family fused: its rows, which lie in several files, and what they share.
//
// Half types and float32, computed in float32 and rounded once; float64 is left
// to operators in separate steps.
#pragma once

#include "kernels/dense.h"
#include "kernels/isa/fused.h"

namespace npu::host {

inline constexpr std::uint64_t kNarrowFloats =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) | NPU_DTYPE_BIT(NPU_F32);

// Caps of a kind on these dtypes alone.
inline void narrow_caps(npu_op_caps& out) noexcept {
  float_caps(out, NPU_MAX_OPERANDS);
  std::fill(out.dtypes, out.dtypes + NPU_MAX_OPERANDS, kNarrowFloats);
}

// Rms norm of float32 rows; mended to the operands that are there.
struct RmsRows {
  const npu_tensor* out;
  const npu_tensor* rstd;
  const npu_tensor* sum;  // of in and residual, or null
  const npu_tensor* in;
  const npu_tensor* residual;
  const npu_tensor* weight;
  std::int64_t length;
  double eps;
};
npu_status rms_rows(const RmsRows& args);

struct RmsGradRows {
  const npu_tensor* grad_in;
  const npu_tensor* grad_weight;
  const npu_tensor* grad_out;
  const npu_tensor* grad_sum;  // added to grad_in, or null
  const npu_tensor* in;
  const npu_tensor* rstd;
  const npu_tensor* weight;
  std::int64_t length;
};
npu_status rms_grad_rows(const RmsGradRows& args);

npu_status moe_gating_caps(std::uint32_t code, npu_op_caps& out);
npu_status moe_gating_run(const npu_call& call);
npu_status moe_route_caps(std::uint32_t code, npu_op_caps& out);
npu_status moe_route_run(const npu_call& call);
npu_status quantise_caps(std::uint32_t code, npu_op_caps& out);
npu_status quantise_run(const npu_call& call);
npu_status dequantise_caps(std::uint32_t code, npu_op_caps& out);
npu_status dequantise_run(const npu_call& call);
npu_status paged_attention_caps(std::uint32_t code, npu_op_caps& out);
npu_status paged_attention_run(const npu_call& call);

}  // namespace npu::host

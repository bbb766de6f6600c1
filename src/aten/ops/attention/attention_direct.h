// SPDX-License-Identifier: Apache-2.0
// CPU's flash attention on npu tensors: see Note [Direct].
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "aten/twin/entry.h"

namespace npu {

inline constexpr char kAttention[] =
    "aten::_scaled_dot_product_fused_attention_overrideable";
inline constexpr char kAttentionBackward[] =
    "aten::_scaled_dot_product_fused_attention_overrideable_backward";

// Without dropout. `mask` may be undefined.
struct FlashInputs {
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  const at::Tensor& mask;
  bool causal;
  std::optional<double> scale;
};
struct FlashForward {
  const at::Tensor& grad;  // of the result
  const at::Tensor& out;
  const at::Tensor& logsumexp;
};
struct FlashGradients {
  at::Tensor& query;
  at::Tensor& key;
  at::Tensor& value;
};

// False where the call is none for this way; nothing has happened then.
bool direct_attention(
    twin::Entry& entry,
    const FlashInputs& in,
    at::Tensor& out,
    at::Tensor& logsumexp);
bool direct_attention_backward(
    twin::Entry& entry,
    const FlashInputs& in,
    const FlashForward& forward,
    const FlashGradients& grads);

}  // namespace npu

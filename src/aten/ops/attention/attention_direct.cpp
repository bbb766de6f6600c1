// SPDX-License-Identifier: Apache-2.0
// CPU's flash attention on npu tensors.
#include "aten/ops/attention/attention_direct.h"

#include <cstring>

#include "aten/core/factories.h"
#include "aten/ladder/cpu_kernels.h"
#include "aten/ladder/direct.h"
#include "aten/ops/operands.h"

namespace npu {
namespace {

// What CPU's function lets through, in float32 (half types are packed first),
// with as many heads on both sides.
bool is_flash(const FlashInputs& in) {
  const auto is_operand = [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.dim() == 4 &&
           tensor.numel() != 0;
  };
  const auto query = in.query.sizes();
  const auto key = in.key.sizes();
  return is_operand(in.query) && is_operand(in.key) && is_operand(in.value) &&
         query[0] == key[0] && query[1] == key[1] && query[3] == key[3] &&
         in.value.sizes() == key &&
         (!in.mask.defined() || (in.mask.scalar_type() == at::kFloat &&
                                 (in.mask.dim() == 2 || in.mask.dim() == 4)));
}

// (batch, rows, heads, ...) of (batch, heads, rows, ...).
c10::DimVector swapped_sizes(at::IntArrayRef of) {
  c10::DimVector sizes(of);
  std::swap(sizes[1], sizes[2]);
  return sizes;
}

at::Tensor make_swapped(const at::Tensor& like, at::IntArrayRef sizes) {
  return make_empty(swapped_sizes(sizes), at::kFloat, like.device().index());
}

at::Tensor make_zeros(const at::Tensor& like) {
  at::Tensor made = make_swapped(like, like.sizes());
  std::memset(made.mutable_data_ptr(), 0, made.nbytes());
  return made;
}

OptTensor given(const at::Tensor& tensor) {
  return tensor.defined() ? OptTensor(tensor) : OptTensor();
}

}  // namespace

bool direct_attention(
    ladder::Entry& entry,
    const FlashInputs& in,
    at::Tensor& out,
    at::Tensor& logsumexp) {
  ladder::DirectRun run(
      entry, NPU_REASON_NO_KERNEL, {&in.query, &in.key, &in.value, &in.mask});
  if (!run || !is_flash(in)) {
    return false;
  }
  out = make_empty_like(in.query, at::kFloat);
  const at::Tensor lse = make_swapped(in.query, in.query.sizes().slice(0, 3));
  ladder::cpu::flash_attention(
      out.transpose(1, 2),
      lse,
      in.query,
      in.key,
      in.value,
      in.causal,
      given(in.mask),
      in.scale);
  logsumexp = lse.transpose(1, 2);
  run.finish({&out, &lse});
  return true;
}

bool direct_attention_backward(
    ladder::Entry& entry,
    const FlashInputs& in,
    const FlashForward& forward,
    const FlashGradients& grads) {
  const auto& [grad, out, lse] = forward;
  ladder::DirectRun run(
      entry,
      NPU_REASON_NO_KERNEL,
      {&grad, &in.query, &in.key, &in.value, &out, &lse, &in.mask});
  const auto is_like_query = [&in](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat &&
           tensor.sizes() == in.query.sizes();
  };
  if (!run || !is_flash(in) || !is_like_query(grad) || !is_like_query(out) ||
      lse.scalar_type() != at::kFloat ||
      lse.sizes() != in.query.sizes().slice(0, 3)) {
    return false;
  }
  const at::Tensor dq = make_zeros(in.query);
  const at::Tensor dk = make_zeros(in.key);
  const at::Tensor dv = make_zeros(in.value);
  ladder::cpu::flash_attention_backward(
      dq,
      dk,
      dv,
      grad.transpose(1, 2),
      in.query.transpose(1, 2),
      in.key.transpose(1, 2),
      in.value.transpose(1, 2),
      out.transpose(1, 2),
      lse.transpose(1, 2),
      in.causal,
      given(in.mask),
      in.scale);
  run.finish({&dq, &dk, &dv});
  grads.query = dq.transpose(1, 2);
  grads.key = dk.transpose(1, 2);
  grads.value = dv.transpose(1, 2);
  return true;
}

}  // namespace npu

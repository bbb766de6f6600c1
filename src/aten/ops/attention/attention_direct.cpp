// SPDX-License-Identifier: Apache-2.0
// CPU's flash attention on npu tensors.
#include "aten/ops/attention/attention_direct.h"

#include <cstring>

#include "aten/core/factories.h"
#include "aten/host_device/cpu_kernels.h"
#include "aten/host_device/direct.h"
#include "aten/ops/operands.h"

namespace npu {
namespace {

// What CPU's function lets through, in float32 (half types are packed first),
// with as many heads on both sides.
bool is_flash(const FlashInputs& in) {
  const auto is_operand = [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.dim() == 4 &&
           tensor.numel() != 0 && tensor.stride(3) == 1;
  };
  const auto query = in.query.sizes();
  const auto key = in.key.sizes();
  return is_operand(in.query) && is_operand(in.key) && is_operand(in.value) &&
         query[0] == key[0] && query[1] == key[1] && query[3] == key[3] &&
         in.value.sizes() == key &&
         (!in.mask.defined() || (in.mask.scalar_type() == at::kFloat &&
                                 (in.mask.dim() == 2 || in.mask.dim() == 4)));
}

at::Tensor make_zeros(const at::Tensor& like) {
  at::Tensor made = make_empty_like(like, at::kFloat);
  std::memset(made.mutable_data_ptr(), 0, made.nbytes());
  return made;
}

OptTensor given(const at::Tensor& tensor) {
  return tensor.defined() ? OptTensor(tensor) : OptTensor();
}

}  // namespace

bool direct_attention(
    twin::Entry& entry,
    const FlashInputs& in,
    at::Tensor& out,
    at::Tensor& logsumexp) {
  host_device::DirectRun run(
      entry, NPU_REASON_NO_KERNEL, {&in.query, &in.key, &in.value, &in.mask});
  if (!run || !is_flash(in)) {
    return false;
  }
  out = make_empty_like(in.query, at::kFloat);
  logsumexp = make_empty(
      in.query.sizes().slice(0, 3), at::kFloat, in.query.device().index());
  host_device::cpu::flash_attention(
      out.transpose(1, 2),
      logsumexp.transpose(1, 2),
      in.query,
      in.key,
      in.value,
      in.causal,
      given(in.mask),
      in.scale);
  run.finish({&out, &logsumexp});
  return true;
}

bool direct_attention_backward(
    twin::Entry& entry,
    const FlashInputs& in,
    const FlashForward& forward,
    const FlashGradients& grads) {
  const auto& [grad, out, lse] = forward;
  host_device::DirectRun run(
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
  grads.query = make_zeros(in.query);
  grads.key = make_zeros(in.key);
  grads.value = make_zeros(in.value);
  host_device::cpu::flash_attention_backward(
      grads.query.transpose(1, 2),
      grads.key.transpose(1, 2),
      grads.value.transpose(1, 2),
      grad.transpose(1, 2),
      in.query.transpose(1, 2),
      in.key.transpose(1, 2),
      in.value.transpose(1, 2),
      out.transpose(1, 2),
      lse.transpose(1, 2),
      in.causal,
      given(in.mask),
      in.scale);
  run.finish({&grads.query, &grads.key, &grads.value});
  return true;
}

}  // namespace npu

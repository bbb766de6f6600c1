// SPDX-License-Identifier: Apache-2.0
// CUDA's fused attention kernels, called on the device's twin.
#include "aten/ops/attention/attention_cuda.h"

#include <ATen/Context.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "aten/ladder/ladder.h"

namespace npu::cuda_attention {
namespace {

// Heads of flash attention: 16 bytes are loaded at once, and larger heads have
// no kernel.
constexpr std::int64_t kFlashMultiple = 8;
constexpr std::int64_t kFlashLargest = 256;
// Rows of the memory-efficient kernels' logsumexp are padded to a multiple.
constexpr std::int64_t kRowMultiple = 32;
// Elements of an additive mask that those kernels load at once.
constexpr std::int64_t kMaskMultiple = 16;

bool is_half(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
}

// The rule that forward and backward share: it reads the operands alone.
bool picks_flash(const FlashInputs& in) {
  return is_half(in.query) && !in.mask.defined();
}

bool flash_takes(const FlashInputs& in) {
  const std::int64_t size = in.query.size(3);
  return at::globalContext().userEnabledFlashSDP() &&
         in.value.size(3) == size && size % kFlashMultiple == 0 &&
         size <= kFlashLargest;
}

bool efficient_takes(const FlashInputs& in) {
  const std::int64_t multiple = is_half(in.query) ? 8 : 4;
  const auto is_aligned = [multiple](const at::Tensor& x) {
    return x.size(3) % multiple == 0;
  };
  return at::globalContext().userEnabledMemEfficientSDP() &&
         is_aligned(in.query) && is_aligned(in.value) &&
         in.query.size(1) == in.key.size(1) &&
         (!in.mask.defined() ||
          (in.mask.scalar_type() == in.query.scalar_type() &&
           in.mask.size(-1) == in.key.size(2) &&
           in.key.size(2) % kMaskMultiple == 0));
}

// The kernels read rows whose elements lie side by side.
at::Tensor with_rows(const at::Tensor& x) {
  return x.stride(3) == 1 ? x : x.contiguous();
}

// The memory-efficient backward kernels take it for granted that the output has
// rows before heads, as the forward kernels make it.
at::Tensor rows_before_heads(const at::Tensor& x) {
  return x.transpose(1, 2).contiguous().transpose(1, 2);
}

// What the memory-efficient kernels take as bias: sizes of the scores.
at::Tensor bias_of(const FlashInputs& in) {
  return in.mask.defined() ? in.mask.expand(
                                 {in.query.size(0),
                                  in.query.size(1),
                                  in.query.size(2),
                                  in.key.size(2)})
                           : at::Tensor();
}

// Philox seed and offset: read only where bits are dropped.
at::Tensor no_word(const at::Tensor& query) {
  return at::empty({}, query.options().dtype(at::kLong));
}

template <class... Args>
torch::jit::Stack call(const ladder::TwinOp& op, Args&&... args) {
  torch::jit::Stack stack;
  stack.reserve(sizeof...(Args));
  (torch::jit::push_one(stack, c10::IValue(std::forward<Args>(args))), ...);
  op.run(&stack);
  return stack;
}

}  // namespace

bool takes(const FlashInputs& in) {
  return in.query.numel() != 0 && in.key.numel() != 0 &&
         in.value.numel() != 0 &&
         (picks_flash(in) ? flash_takes(in) : efficient_takes(in));
}

std::tuple<at::Tensor, at::Tensor> forward(const FlashInputs& in) {
  if (picks_flash(in)) {
    static const ladder::TwinOp op(
        "aten::_scaled_dot_product_flash_attention", "", kAttention);
    const torch::jit::Stack results = call(
        op,
        with_rows(in.query),
        with_rows(in.key),
        with_rows(in.value),
        /*dropout_p=*/0.0,
        in.causal,
        /*return_debug_mask=*/false,
        in.scale);
    return {results[0].toTensor(), results[1].toTensor().contiguous()};
  }
  static const ladder::TwinOp op(
      "aten::_scaled_dot_product_efficient_attention", "", kAttention);
  const torch::jit::Stack results = call(
      op,
      with_rows(in.query),
      with_rows(in.key),
      with_rows(in.value),
      in.mask.defined() ? c10::IValue(bias_of(in)) : c10::IValue(),
      /*compute_log_sumexp=*/true,
      /*dropout_p=*/0.0,
      in.causal,
      in.scale);
  return {
      results[0].toTensor(),
      results[1].toTensor().narrow(2, 0, in.query.size(2)).contiguous()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const FlashInputs& in, const FlashForward& forward) {
  const at::Tensor grad = with_rows(forward.grad);
  const at::Tensor word = no_word(in.query);
  if (picks_flash(in)) {
    static const ladder::TwinOp op(
        "aten::_scaled_dot_product_flash_attention_backward",
        "",
        kAttentionBackward);
    const torch::jit::Stack results = call(
        op,
        grad,
        with_rows(in.query),
        with_rows(in.key),
        with_rows(in.value),
        with_rows(forward.out),
        forward.logsumexp,
        at::Tensor(),
        at::Tensor(),
        in.query.size(2),
        in.key.size(2),
        /*dropout_p=*/0.0,
        in.causal,
        word,
        word,
        in.scale);
    return {
        results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
  }
  static const ladder::TwinOp op(
      "aten::_scaled_dot_product_efficient_attention_backward",
      "",
      kAttentionBackward);
  const std::int64_t rows = forward.logsumexp.size(2);
  const std::int64_t missing =
      (kRowMultiple - rows % kRowMultiple) % kRowMultiple;
  const at::Tensor lse = missing == 0
                             ? forward.logsumexp
                             : at::constant_pad_nd(
                                   forward.logsumexp,
                                   {0, missing},
                                   std::numeric_limits<double>::infinity());
  c10::List<bool> wanted({true, true, true, false});
  const torch::jit::Stack results = call(
      op,
      grad,
      with_rows(in.query),
      with_rows(in.key),
      with_rows(in.value),
      bias_of(in),
      rows_before_heads(forward.out),
      lse,
      word,
      word,
      /*dropout_p=*/0.0,
      std::move(wanted),
      in.causal,
      in.scale);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

}  // namespace npu::cuda_attention

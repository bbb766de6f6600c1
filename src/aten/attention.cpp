// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention: PyTorch asks which way to go, then calls the
// pair of operators kept free for backends. We go CPU's way, bit for bit.
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <torch/library.h>

#include <tuple>

#include "aten/factories.h"
#include "aten/frame.h"
#include "aten/ladder/ladder.h"
#include "runtime/error.h"

namespace npu {
namespace {

using OptTensor = std::optional<at::Tensor>;
using Forward = std::tuple<
    at::Tensor,
    at::Tensor,
    at::Tensor,
    at::Tensor,
    c10::SymInt,
    c10::SymInt,
    at::Tensor,
    at::Tensor,
    at::Tensor>;
using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

constexpr char kFlash[] = "aten::_scaled_dot_product_flash_attention_for_cpu";
constexpr char kFlashBackward[] =
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward";
constexpr char kForward[] =
    "aten::_scaled_dot_product_fused_attention_overrideable";
constexpr char kBackward[] =
    "aten::_scaled_dot_product_fused_attention_overrideable_backward";

// Inside vmap, grad, jvp, ... of torch.func: the backends' pair has neither a
// batching rule nor a forward derivative.
bool is_transformed(const at::Tensor& tensor) {
  using c10::DispatchKey;
  return tensor.key_set().has_any(c10::DispatchKeySet(
      {DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper}));
}

// The state of a dropout's generator, which there is none of. PyTorch's meta
// kernel promises a tensor, and torch.compile saves it for backward.
at::Tensor no_philox(const at::Tensor& like) {
  return make_empty({}, c10::kLong, like.device().index());
}

// Where CPU would take its flash kernel we take the backends' pair, which is
// that kernel; everything else decomposes as on CPU.
std::int64_t choose(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const OptTensor& mask,
    double dropout,
    bool causal,
    std::optional<double> scale,
    bool grouped) {
  if (is_transformed(query) || is_transformed(key) || is_transformed(value)) {
    return static_cast<std::int64_t>(sdp::SDPBackend::math);
  }
  const std::int64_t choice = at::native::_fused_sdp_choice_cpp(
      query, key, value, mask, dropout, causal, scale, grouped);
  constexpr auto kFlashChoice =
      static_cast<std::int64_t>(sdp::SDPBackend::flash_attention);
  return choice == kFlashChoice
             ? static_cast<std::int64_t>(sdp::SDPBackend::overrideable)
             : choice;
}

void check_no_dropout(double dropout) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout == 0,
      "npu: fused attention: dropout ",
      dropout,
      " is not supported here. "
      "Call torch.nn.functional.scaled_dot_product_attention, which supports "
      "it.",
      ops_error(Code::kNotSupported));
}

Forward attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const OptTensor& mask,
    double dropout,
    bool causal,
    bool,
    std::optional<double> scale) {
  check_same_device(kForward, {&query, &key, &value});
  check_no_dropout(dropout);
  static const ladder::CpuOp op(kFlash, "", kForward);
  auto [out, logsumexp] = op.call<std::tuple<at::Tensor, at::Tensor>>(
      query, key, value, dropout, causal, mask, scale);
  return {
      std::move(out),
      std::move(logsumexp),
      at::Tensor(),
      at::Tensor(),
      query.sym_size(2),
      key.sym_size(2),
      no_philox(query),
      no_philox(query),
      at::Tensor()};
}

Backward attention_backward(
    const at::Tensor& grad,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& mask,
    std::array<bool, 4>,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor&,
    const at::Tensor&,
    c10::SymInt,
    c10::SymInt,
    double dropout,
    bool causal,
    const at::Tensor&,
    const at::Tensor&,
    std::optional<double> scale) {
  check_same_device(kBackward, {&grad, &query, &key, &value, &out, &logsumexp});
  check_no_dropout(dropout);
  static const ladder::CpuOp op(kFlashBackward, "", kBackward);
  using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  auto [dq, dk, dv] = op.call<Grads>(
      grad,
      query,
      key,
      value,
      out,
      logsumexp,
      dropout,
      causal,
      mask.defined() ? OptTensor(mask) : OptTensor(),
      scale);
  return {std::move(dq), std::move(dk), std::move(dv), at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose));
  m.impl(
      "_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  m.impl(
      "_scaled_dot_product_fused_attention_overrideable_backward",
      TORCH_FN(attention_backward));
}

}  // namespace npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &npu::choose)
}  // namespace at::native

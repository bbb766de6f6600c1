// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention: PyTorch asks which way to go, then calls the
// pair of operators kept free for backends. The driver's kinds serve it, or
// CPU's flash kernel, bit for bit.
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <torch/library.h>

#include <tuple>

#include "aten/adapters/native.h"
#include "aten/adapters/operands.h"
#include "aten/factories.h"
#include "aten/ladder/ladder.h"
#include "driver/build_call.h"
#include "runtime/error.h"

namespace npu {
namespace {

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

// (batch, heads, rows, size), equal dtypes; lse is float32, so float64 goes
// CPU's way.
bool fits(
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& mask) {
  const auto type = q.scalar_type();
  return is_float(q) && type != at::kDouble && k.scalar_type() == type &&
         v.scalar_type() == type && q.dim() == 4 && k.dim() == 4 &&
         v.dim() == 4 && k.size(1) > 0 && q.size(1) % k.size(1) == 0 &&
         (!mask.defined() || (mask.dim() <= 4 && mask.dim() >= 2));
}

template <class Attrs>
Attrs attributes(
    const at::Tensor& query, bool causal, std::optional<double> scale) {
  Attrs attrs{};
  attrs.scale =
      scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  attrs.window_left = attrs.window_right = -1;
  attrs.causal =
      causal ? NPU_ATTENTION_CAUSAL_TOP_LEFT : NPU_ATTENTION_CAUSAL_NONE;
  attrs.layout = NPU_ATTENTION_LAYOUT_BHSD;
  return attrs;
}

// (batch, heads, rows, ...) laid out as CPU's kernel lays out what it makes:
// rows before heads.
at::Tensor rows_first(
    const at::Tensor& like, c10::DimVector sizes, c10::ScalarType type) {
  std::swap(sizes[1], sizes[2]);
  return make_empty(sizes, type, like.device().index()).transpose(1, 2);
}

bool native_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& mask,
    bool causal,
    std::optional<double> scale,
    at::Tensor& out,
    at::Tensor& lse) {
  static NativeSite site(kForward, NPU_KIND_ATTENTION, 0);
  npu_reason why = site.wants(query, key, value, mask);
  if (!takes(fits(query, key, value, mask), why)) {
    return false;
  }
  const c10::DimVector sizes = {
      query.size(0), query.size(1), query.size(2), value.size(3)};
  out = value.size(3) == query.size(3)
            ? make_empty_like(query, query.scalar_type())
            : make_empty(sizes, query.scalar_type(), query.device().index());
  lse = rows_first(query, {sizes[0], sizes[1], sizes[2]}, at::kFloat);
  auto attrs = attributes<npu_attention_attrs>(query, causal, scale);
  Call call = site.call();
  build::attention(
      call,
      to_operand(out),
      MaybeOperand(lse),
      to_operand(query),
      to_operand(key),
      to_operand(value),
      MaybeOperand(mask),
      nullptr,
      nullptr,
      nullptr,
      attrs);
  return site.run(call, query.device().index()) == NPU_REASON_NONE;
}

bool native_backward(
    const at::Tensor& grad,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& mask,
    const at::Tensor& out,
    const at::Tensor& lse,
    bool causal,
    std::optional<double> scale,
    Backward& grads) {
  static NativeSite site(kBackward, NPU_KIND_ATTENTION_GRAD, 0);
  npu_reason why = site.wants(query, key, value, grad, out, lse, mask);
  if (!takes(
          fits(query, key, value, mask) && lse.scalar_type() == at::kFloat,
          why)) {
    return false;
  }
  const auto like = [](const at::Tensor& t) {
    return rows_first(t, c10::DimVector(t.sizes()), t.scalar_type());
  };
  const at::Tensor dq = like(query);
  const at::Tensor dk = like(key);
  const at::Tensor dv = like(value);
  grads = {dq, dk, dv, at::Tensor()};
  auto attrs = attributes<npu_attention_grad_attrs>(query, causal, scale);
  Call call = site.call();
  build::attention_grad(
      call,
      MaybeOperand(dq),
      MaybeOperand(dk),
      MaybeOperand(dv),
      nullptr,
      nullptr,
      to_operand(grad),
      to_operand(query),
      to_operand(key),
      to_operand(value),
      to_operand(out),
      to_operand(lse),
      MaybeOperand(mask),
      nullptr,
      nullptr,
      nullptr,
      attrs);
  return site.run(call, query.device().index()) == NPU_REASON_NONE;
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
  at::Tensor out;
  at::Tensor logsumexp;
  if (!native_attention(
          query,
          key,
          value,
          or_undefined(mask),
          causal,
          scale,
          out,
          logsumexp)) {
    static const ladder::CpuOp op(kFlash, "", kForward);
    std::tie(out, logsumexp) = op.call<std::tuple<at::Tensor, at::Tensor>>(
        query, key, value, dropout, causal, mask, scale);
  }
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
  Backward native;
  if (native_backward(
          grad,
          query,
          key,
          value,
          mask,
          out,
          logsumexp,
          causal,
          scale,
          native)) {
    return native;
  }
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

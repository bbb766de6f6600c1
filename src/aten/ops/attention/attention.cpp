// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention: PyTorch asks which way to go, then calls the
// pair of operators kept free for backends. The driver's kinds serve it, also
// with dropout, or CPU's flash kernel, bit for bit.
#include <ATen/ScalarOps.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/core/factories.h"
#include "aten/ladder/native.h"
#include "aten/ops/attention/attention_direct.h"
#include "aten/ops/op.h"
#include "aten/random/seeded.h"
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

// One half of a generator's state, kept for backward. PyTorch's meta kernel
// promises a tensor even without dropout, and torch.compile saves it. On the
// host: reading it there waits for nothing.
at::Tensor saved_word(std::uint64_t word) {
  return at::detail::scalar_tensor_static(
      static_cast<std::int64_t>(word), c10::kLong, c10::kCPU);
}

// The same where nothing is drawn: nobody reads it, so all share one storage.
at::Tensor unused_word() {
  static const at::Tensor zero = saved_word(0);
  return at::Tensor(zero.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

std::uint64_t word_of(const at::Tensor& saved) {
  return static_cast<std::uint64_t>(saved.item<std::int64_t>());
}

// CPU's function of the operator that `entry` is for, unboxed.
template <class R, class... Args>
R call_flash(
    ladder::Entry& entry,
    R (*fn)(Args...),
    std::type_identity_t<Args>... args) {
  return ladder::run_unboxed<R, Args...>(
      entry, NPU_REASON_NO_KERNEL, fn, std::forward<Args>(args)...);
}

NativeSite& forward_site() {
  static NativeSite site(kForward, NPU_KIND_ATTENTION, 0);
  return site;
}

// The arguments that forward and backward share. `rng` draws the dropped bits.
struct Query {
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  const at::Tensor& mask;
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale = {};
  npu_rng rng = {};

  // (batch, heads, rows, size), equal dtypes; lse is float32, so float64 goes
  // CPU's way.
  bool fits() const {
    return is_float(query) && query.scalar_type() != at::kDouble &&
           same_dtype(key, query) && same_dtype(value, query) &&
           query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
           key.size(1) > 0 && query.size(1) % key.size(1) == 0 &&
           (!mask.defined() || (mask.dim() <= 4 && mask.dim() >= 2));
  }
  template <class Attrs>
  Attrs attrs() const {
    Attrs out{};
    out.dropout = dropout;
    out.scale =
        scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
    out.window_left = out.window_right = -1;
    out.causal =
        causal ? NPU_ATTENTION_CAUSAL_TOP_LEFT : NPU_ATTENTION_CAUSAL_NONE;
    out.layout = NPU_ATTENTION_LAYOUT_BHSD;
    return out;
  }
  // What a call without dropout cannot be refused for.
  void check_dropout() const {
    TORCH_CHECK(
        dropout >= 0 && dropout <= 1,
        "dropout probability has to be between 0 and 1, but got ",
        dropout);
    TORCH_CHECK_NOT_IMPLEMENTED(
        dropout == 0 || fits(),
        "npu: fused attention: dropout ",
        dropout,
        " is not supported for these dtypes and sizes. "
        "Call torch.nn.functional.scaled_dot_product_attention, which supports "
        "it.",
        ops_error(Code::kNotSupported));
  }
  bool run(Site& site, Call& call) const {
    call.set_rng(rng);
    const RunOptions options{.embedded = dropout != 0};
    return site.run(call, query.device().index(), options) == NPU_REASON_NONE;
  }
};

// Whether the driver itself has attention, and wants it: CPU's kernel cannot
// drop, and no other kind draws those bits.
bool drops_natively(const Query& c) {
  return forward_site().caps() != nullptr && c.fits() &&
         forward_site().wants(c.query, c.key, c.value, c.mask) ==
             NPU_REASON_NONE;
}

// Where CPU would take its flash kernel we take the backends' pair, which is
// that kernel, or the driver's; with dropout only the driver's. Everything else
// decomposes as on CPU.
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
  const bool drops = dropout > 0 && dropout <= 1 &&
                     drops_natively({query, key, value, or_undefined(mask)});
  const std::int64_t choice = at::native::_fused_sdp_choice_cpp(
      query, key, value, mask, drops ? 0 : dropout, causal, scale, grouped);
  constexpr auto kFlashChoice =
      static_cast<std::int64_t>(sdp::SDPBackend::flash_attention);
  return choice == kFlashChoice
             ? static_cast<std::int64_t>(sdp::SDPBackend::overrideable)
             : choice;
}

// (batch, heads, rows, ...) laid out with two dimensions swapped, as CPU's
// kernel lays out what it makes: rows before heads.
at::Tensor swapped(
    const at::Tensor& like,
    at::IntArrayRef of,
    std::int64_t a,
    std::int64_t b,
    c10::ScalarType type) {
  c10::DimVector sizes(of);
  std::swap(sizes[a], sizes[b]);
  return make_empty(sizes, type, like.device().index()).transpose(a, b);
}

bool native_attention(const Query& c, at::Tensor& out, at::Tensor& lse) {
  const at::Tensor& query = c.query;
  NativeSite& site = forward_site();
  npu_reason why = site.wants(query, c.key, c.value, c.mask);
  if (!takes(c.fits(), why) && c.dropout == 0) {
    return false;
  }
  const c10::DimVector sizes = {
      query.size(0), query.size(1), query.size(2), c.value.size(3)};
  // With dropout CPU has products of matrices, which come out contiguous.
  out = c.value.size(3) == query.size(3) && c.dropout == 0
            ? make_empty_like(query, query.scalar_type())
            : make_empty(sizes, query.scalar_type(), query.device().index());
  lse = swapped(query, at::IntArrayRef(sizes).slice(0, 3), 1, 2, at::kFloat);
  auto attrs = c.attrs<npu_attention_attrs>();
  Call call = site.call();
  fill<build::attention>(
      call,
      out,
      lse,
      query,
      c.key,
      c.value,
      c.mask,
      nullptr,
      nullptr,
      nullptr,
      attrs);
  return c.run(site, call);
}

bool native_backward(
    const Query& c,
    const at::Tensor& grad,
    const at::Tensor& out,
    const at::Tensor& lse,
    Backward& grads) {
  static NativeSite site(kBackward, NPU_KIND_ATTENTION_GRAD, 0);
  npu_reason why = site.wants(c.query, c.key, c.value, grad, out, lse, c.mask);
  if (!takes(c.fits() && lse.scalar_type() == at::kFloat, why) &&
      c.dropout == 0) {
    return false;
  }
  const auto like = [&c](const at::Tensor& t, int inner = 3) {
    return c.dropout == 0 ? swapped(t, t.sizes(), 1, 2, t.scalar_type())
                          : swapped(t, t.sizes(), inner, 3, t.scalar_type());
  };
  const at::Tensor dq = like(c.query);
  const at::Tensor dk = like(c.key, 2);  // made as its transpose
  const at::Tensor dv = like(c.value);
  grads = {dq, dk, dv, at::Tensor()};
  auto attrs = c.attrs<npu_attention_grad_attrs>();
  Call call = site.call();
  fill<build::attention_grad>(
      call,
      dq,
      dk,
      dv,
      nullptr,
      nullptr,
      grad,
      c.query,
      c.key,
      c.value,
      out,
      lse,
      c.mask,
      nullptr,
      nullptr,
      nullptr,
      attrs);
  return c.run(site, call);
}

// Words that the rows' bits are drawn from: 16 bits for each key.
npu_rng reserve_bits(const at::Tensor& key, double dropout) {
  return dropout == 0
             ? npu_rng{}
             : reserve_random(
                   {}, key.device().index(), 4 * ((key.size(2) + 7) / 8));
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
  Query call{query, key, value, or_undefined(mask), dropout, causal, scale};
  call.check_dropout();
  call.rng = reserve_bits(key, dropout);
  at::Tensor out;
  at::Tensor logsumexp;
  if (!native_attention(call, out, logsumexp)) {
    static ladder::Entry& entry =
        ladder::make_entry(find_operator(kFlash), kForward);
    if (dropout != 0 || !direct_attention(
                            entry,
                            {query, key, value, call.mask, causal, scale},
                            out,
                            logsumexp)) {
      std::tie(out, logsumexp) = call_flash(
          entry,
          &at::cpu::_scaled_dot_product_flash_attention_for_cpu,
          query,
          key,
          value,
          dropout,
          causal,
          mask,
          scale);
    }
  }
  return {
      std::move(out),
      std::move(logsumexp),
      at::Tensor(),
      at::Tensor(),
      query.sym_size(2),
      key.sym_size(2),
      dropout == 0 ? unused_word() : saved_word(call.rng.seed),
      dropout == 0 ? unused_word() : saved_word(call.rng.offset),
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
    const at::Tensor& seed,
    const at::Tensor& offset,
    std::optional<double> scale) {
  check_same_device(kBackward, {&grad, &query, &key, &value, &out, &logsumexp});
  Query call{query, key, value, mask, dropout, causal, scale};
  call.check_dropout();
  if (dropout != 0) {
    call.rng.seed = word_of(seed);
    call.rng.offset = word_of(offset);
  }
  Backward native;
  if (native_backward(call, grad, out, logsumexp, native)) {
    return native;
  }
  static ladder::Entry& entry =
      ladder::make_entry(find_operator(kFlashBackward), kBackward);
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  if (dropout != 0 || !direct_attention_backward(
                          entry,
                          {query, key, value, mask, causal, scale},
                          {grad, out, logsumexp},
                          {dq, dk, dv})) {
    std::tie(dq, dk, dv) = call_flash(
        entry,
        &at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward,
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
  }
  return {std::move(dq), std::move(dk), std::move(dv), at::Tensor()};
}

template <class... Rest>
Backward backward_shapes(
    const at::Tensor&,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    Rest...) {
  return {
      at::empty_like(query),
      at::empty_like(key),
      at::empty_like(value),
      at::Tensor()};
}
constexpr decltype(&attention_backward) kBackwardShapes = &backward_shapes;

bool has_meta(const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  return op && op->hasKernelForDispatchKey(c10::DispatchKey::Meta);
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

// torch 2.11 has none, and a fake tensor would run the kernel to learn sizes.
TORCH_LIBRARY_IMPL(aten, Meta, m) {
  if (!has_meta(kBackward)) {
    m.impl(
        "_scaled_dot_product_fused_attention_overrideable_backward",
        kBackwardShapes);
  }
}

}  // namespace npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &npu::choose)
}  // namespace at::native

// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention: PyTorch asks which way to go, then calls the
// pair of operators kept free for backends. The driver's kinds serve it, also
// with dropout, or the CPU's flash kernel, bit for bit. Results have the
// layouts of the fake kernels, which torch.compile plans with: outputs and
// gradients those of the operands, logsumexp contiguous.
#include <ATen/Context.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/core/algorithms.h"
#include "aten/core/factories.h"
#include "aten/ladder/native.h"
#include "aten/ops/attention/attention_cuda.h"
#include "aten/ops/attention/attention_direct.h"
#include "aten/ops/op.h"
#include "aten/random/seeded.h"
#include "aten/twin/twin.h"
#include "driver/build_call.h"
#include "driver/registry.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"
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

// The same where nothing is drawn: it is never read, so all share one storage.
at::Tensor unused_word() {
  static const at::Tensor zero = saved_word(0);
  return at::Tensor(zero.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

std::uint64_t word_of(const at::Tensor& saved) {
  return static_cast<std::uint64_t>(saved.item<std::int64_t>());
}

// A function of CPU tensors, on the CPU rung of the operator of `entry`.
template <class R, class... Args>
R call_flash(
    twin::Entry& entry, R (*fn)(Args...), std::type_identity_t<Args>... args) {
  return ladder::run_unboxed<R, Args...>(
      entry, NPU_REASON_NO_KERNEL, fn, std::forward<Args>(args)...);
}

double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
}

// The output: sizes and order of dimensions of `query`, with its own last size,
// without gaps.
struct OutputLayout {
  OutputLayout(const at::Tensor& query, std::int64_t last) {
    std::copy_n(query.sizes().begin(), 3, sizes.begin());
    sizes[3] = last;
    std::array<int, 4> order = {0, 1, 2, 3};  // outermost first
    std::stable_sort(order.begin(), order.end(), [&query](int a, int b) {
      return query.stride(a) > query.stride(b);
    });
    std::int64_t stride = 1;
    for (int i = 3; i >= 0; --i) {
      strides[order[i]] = stride;
      stride *= sizes[order[i]];
    }
  }
  std::array<std::int64_t, 4> sizes;
  std::array<std::int64_t, 4> strides;
};

// As the CPU's flash kernel needs an operand: elements of a row side by side,
// and one size for all. Zeros change neither the scores nor the other columns.
at::Tensor flash_operand(const at::Tensor& x, std::int64_t size) {
  const at::Tensor rows = x.stride(3) == 1 ? x : x.contiguous();
  return x.size(3) == size
             ? rows
             : at::constant_pad_nd(rows, {0, size - x.size(3)}, 0);
}

std::int64_t flash_size(const at::Tensor& query, const at::Tensor& value) {
  return std::max(query.size(3), value.size(3));
}

// `made` has rows before heads, and perhaps columns that were padded.
at::Tensor laid_out(const at::Tensor& made, const at::Tensor& as) {
  const at::Tensor mine = made.narrow(3, 0, as.size(3));
  return mine.strides() == as.strides() ? mine : as.copy_(mine);
}

at::Tensor empty_output(const at::Tensor& query, const at::Tensor& value) {
  if (query.size(3) == value.size(3)) {
    return at::empty_like(query);
  }
  const OutputLayout layout(query, value.size(3));
  return at::empty_strided(layout.sizes, layout.strides, query.options());
}

std::tuple<at::Tensor, at::Tensor> flash_on_cpu(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    double dropout,
    bool causal,
    const OptTensor& mask,
    std::optional<double> scale) {
  const std::int64_t size = flash_size(query, value);
  const auto [out, lse] = at::cpu::_scaled_dot_product_flash_attention_for_cpu(
      flash_operand(query, size),
      flash_operand(key, size),
      flash_operand(value, size),
      dropout,
      causal,
      mask,
      scale_of(query, scale));
  return {laid_out(out, empty_output(query, value)), lse.contiguous()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward_on_cpu(
    const at::Tensor& grad,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    double dropout,
    bool causal,
    const OptTensor& mask,
    std::optional<double> scale) {
  const std::int64_t size = flash_size(query, value);
  const auto [dq, dk, dv] =
      at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
          flash_operand(grad, size),
          flash_operand(query, size),
          flash_operand(key, size),
          flash_operand(value, size),
          flash_operand(out, size),
          logsumexp,
          dropout,
          causal,
          mask,
          scale_of(query, scale));
  return {
      laid_out(dq, at::empty_like(query)),
      laid_out(dk, at::empty_like(key)),
      laid_out(dv, at::empty_like(value))};
}

NativeSite& forward_site() {
  static NativeSite site(kAttention, NPU_KIND_ATTENTION, 0);
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

  // (batch, heads, rows, size) of equal dtypes; values may have a size of their
  // own, and several query heads one head of keys and values. lse is float32,
  // so float64 would lose half its digits in backward: not the driver's.
  bool fits() const {
    if (!is_float(query) || query.scalar_type() == at::kDouble ||
        !same_dtype(key, query) || !same_dtype(value, query) ||
        query.dim() != 4 || key.dim() != 4 || value.dim() != 4) {
      return false;
    }
    const auto q = query.sizes();
    const auto k = key.sizes();
    return k.slice(0, 3) == value.sizes().slice(0, 3) && q[0] == k[0] &&
           q[3] == k[3] && k[1] > 0 && q[1] % k[1] == 0 && mask_fits();
  }
  // Each dimension is that of the scores, or 1.
  bool mask_fits() const {
    if (!mask.defined()) {
      return true;
    }
    if (mask.dim() < 2 || mask.dim() > 4) {
      return false;
    }
    const std::int64_t scores[] = {
        query.size(0), query.size(1), query.size(2), key.size(2)};
    for (std::int64_t d = 1; d <= mask.dim(); ++d) {
      if (mask.size(-d) != scores[4 - d] && mask.size(-d) != 1) {
        return false;
      }
    }
    return true;
  }
  FlashInputs inputs() const {
    return {query, key, value, mask, causal, scale};
  }
  // CUDA's kernels compute it on the device's twin. They would draw other bits.
  bool fits_cuda() const {
    return !twin::uses_cpu_functions() && dropout == 0 && fits() &&
           cuda_attention::takes(inputs());
  }
  template <class Attrs>
  Attrs attrs() const {
    Attrs out{};
    out.dropout = dropout;
    out.scale = scale_of(query, scale);
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

at::Tensor make_output(const at::Tensor& query, std::int64_t last) {
  if (last == query.size(3)) {
    return make_empty_like(query, query.scalar_type());
  }
  const OutputLayout layout(query, last);
  return make_empty_strided(
      layout.sizes,
      layout.strides,
      query.scalar_type(),
      query.device().index());
}

// An operand without memory, to plan with: as aligned as the allocator's
// blocks.
npu_tensor planned_operand(
    npu_dtype dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  npu_tensor out{};
  out.data = out.storage = reinterpret_cast<void*>(std::uintptr_t{4096});
  out.sizes = sizes.data();
  out.strides = strides.data();
  out.ndim = static_cast<std::uint16_t>(sizes.size());
  out.numel = c10::multiply_integers(sizes);
  out.storage_bytes = static_cast<std::uint64_t>(out.numel) * 8;
  out.dtype = dtype;
  return out;
}

// A fake tensor has no memory either.
npu_tensor planned_operand(const at::Tensor& x) {
  if (!x.unsafeGetTensorImpl()->is_python_dispatch()) {
    return to_operand(x);
  }
  npu_tensor out =
      planned_operand(to_npu_dtype(x.scalar_type()), x.sizes(), x.strides());
  out.flags = x.is_contiguous() ? NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE : 0;
  return out;
}

// The driver's own answer about the call, which is only planned.
bool driver_takes(const Query& c) {
  NativeSite& site = forward_site();
  const npu_device device = driver_device(c.query.device().index());
  const OutputLayout layout(c.query, c.value.size(3));
  const std::array<std::int64_t, 3> sizes = {
      layout.sizes[0], layout.sizes[1], layout.sizes[2]};
  const std::array<std::int64_t, 3> strides = {
      sizes[1] * sizes[2], sizes[2], 1};
  const npu_tensor q = planned_operand(c.query);
  npu_tensor out = planned_operand(q.dtype, layout.sizes, layout.strides);
  npu_tensor lse = planned_operand(NPU_F32, sizes, strides);
  lse.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  out.flags = NPU_TENSOR_DENSE;
  out.device = lse.device = device;
  npu_tensor mask{};
  if (c.mask.defined()) {
    mask = planned_operand(c.mask);
    mask.dtype = q.dtype;  // bools become numbers before the call
  }
  auto attrs = c.attrs<npu_attention_attrs>();
  Call call = site.call();
  build::attention(
      call,
      out,
      &lse,
      q,
      planned_operand(c.key),
      planned_operand(c.value),
      c.mask.defined() ? &mask : nullptr,
      nullptr,
      nullptr,
      nullptr,
      attrs);
  return plan_call(call, active_driver(), device).answer != NPU_VERDICT_NO;
}

// Whether the backends' pair is to be called for the driver's sake: its kernel
// takes the call, or attention is composed of its other kinds. Those cannot
// drop: no other kind draws the bits.
bool goes_to_driver(const Query& c) {
  NativeSite& site = forward_site();
  return c.fits() &&
         site.wants(c.query, c.key, c.value, c.mask) == NPU_REASON_NONE &&
         driver_takes(c);
}

constexpr auto kMath = static_cast<std::int64_t>(sdp::SDPBackend::math);
constexpr auto kPair = static_cast<std::int64_t>(sdp::SDPBackend::overrideable);

// The CPU's choice. Its flash kernel is behind the backends' pair too; where it
// would work on copies, and the driver has none, other operators make the
// result.
std::int64_t choose_as_cpu(
    const Query& c, const OptTensor& mask, bool has_kernel, bool grouped) {
  const std::int64_t choice = at::native::_fused_sdp_choice_cpp(
      c.query,
      c.key,
      c.value,
      mask,
      has_kernel ? 0 : c.dropout,
      c.causal,
      c.scale,
      grouped);
  if (choice != static_cast<std::int64_t>(sdp::SDPBackend::flash_attention)) {
    return choice;
  }
  return has_kernel || host_can_read(c.query.device().index()) ||
                 !at::globalContext().userEnabledMathSDP()
             ? kPair
             : kMath;
}

// The driver's way where it has one, else the CPU's choice.
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
    return kMath;
  }
  const at::Tensor& m = or_undefined(mask);
  const Query call{query, key, value, m, dropout, causal, scale};
  if (is_symbolic(query) || is_symbolic(key) || is_symbolic(value) ||
      (m.defined() && is_symbolic(m))) {
    // Sizes that are no numbers yet cannot be planned with.
    const bool has_kernel =
        forward_site().caps() != nullptr && query.scalar_type() != at::kDouble;
    if (!has_kernel && !twin::uses_cpu_functions()) {
      return kMath;
    }
    return choose_as_cpu(call, mask, has_kernel, grouped);
  }
  if (at::globalContext().userEnabledFlashSDP() &&
      !(m.defined() && m.requires_grad()) && dropout >= 0 && dropout <= 1 &&
      query.dim() == 4 && key.dim() == 4 &&
      (grouped || query.size(1) == key.size(1)) && goes_to_driver(call)) {
    return kPair;
  }
  if (!twin::uses_cpu_functions()) {
    const bool mask_is_constant = !m.defined() || !m.requires_grad();
    return call.fits_cuda() && mask_is_constant ? kPair : kMath;
  }
  return choose_as_cpu(call, mask, false, grouped);
}

bool native_attention(const Query& c, at::Tensor& out, at::Tensor& lse) {
  const at::Tensor& query = c.query;
  NativeSite& site = forward_site();
  npu_reason why = site.wants(query, c.key, c.value, c.mask);
  if (!takes(c.fits(), why) && c.dropout == 0) {
    return false;
  }
  out = make_output(query, c.value.size(3));
  lse =
      make_empty(query.sizes().slice(0, 3), at::kFloat, query.device().index());
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
  static NativeSite site(kAttentionBackward, NPU_KIND_ATTENTION_GRAD, 0);
  npu_reason why = site.wants(c.query, c.key, c.value, grad, out, lse, c.mask);
  if (!takes(c.fits() && lse.scalar_type() == at::kFloat, why) &&
      c.dropout == 0) {
    return false;
  }
  const at::Tensor dq = make_empty_like(c.query, c.query.scalar_type());
  const at::Tensor dk = make_empty_like(c.key, c.key.scalar_type());
  const at::Tensor dv = make_empty_like(c.value, c.value.scalar_type());
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
  check_same_device(kAttention, {&query, &key, &value});
  Query call{query, key, value, or_undefined(mask), dropout, causal, scale};
  call.check_dropout();
  call.rng = reserve_bits(key, dropout);
  at::Tensor out;
  at::Tensor logsumexp;
  if (native_attention(call, out, logsumexp)) {
    // The driver's kernel has run.
  } else if (call.fits_cuda()) {
    std::tie(out, logsumexp) = cuda_attention::forward(call.inputs());
    out = laid_out(out, empty_output(query, value));
  } else {
    static twin::Entry& entry =
        twin::make_entry(find_operator(kFlash), kAttention);
    if (dropout != 0 ||
        !direct_attention(entry, call.inputs(), out, logsumexp)) {
      std::tie(out, logsumexp) = call_flash(
          entry,
          &flash_on_cpu,
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
  check_same_device(
      kAttentionBackward, {&grad, &query, &key, &value, &out, &logsumexp});
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
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  if (call.fits_cuda()) {
    std::tie(dq, dk, dv) =
        cuda_attention::backward(call.inputs(), {grad, out, logsumexp});
    return {
        laid_out(dq, at::empty_like(query)),
        laid_out(dk, at::empty_like(key)),
        laid_out(dv, at::empty_like(value)),
        at::Tensor()};
  }
  static twin::Entry& entry =
      twin::make_entry(find_operator(kFlashBackward), kAttentionBackward);
  if (dropout != 0 ||
      !direct_attention_backward(
          entry, call.inputs(), {grad, out, logsumexp}, {dq, dk, dv})) {
    std::tie(dq, dk, dv) = call_flash(
        entry,
        &flash_backward_on_cpu,
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
  if (!has_meta(kAttentionBackward)) {
    m.impl(
        "_scaled_dot_product_fused_attention_overrideable_backward",
        kBackwardShapes);
  }
}

}  // namespace npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &npu::choose)
}  // namespace at::native

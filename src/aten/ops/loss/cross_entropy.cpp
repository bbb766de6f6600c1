// SPDX-License-Identifier: Apache-2.0
// cross_entropy_loss in one call of the driver, and its backward in another.
//
// PyTorch makes it of log_softmax and nll_loss before any backend sees it, so
// it is taken over above autograd. Traced and transformed programs, and
// gradients of gradients, get those parts. Under autocast the loss of half
// logits is float32, as it is of the parts, and no float32 logits are made.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss_compositeimplicitautograd_dispatch.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "aten/ops/autocast.h"
#include "aten/ops/op.h"
#include "aten/ops/operands.h"
#include "driver/build_call.h"
#include "runtime/device.h"

namespace npu {
namespace {

constexpr char kName[] = "aten::cross_entropy_loss";

// The arguments, the loss' dtype, and what backward needs.
struct Entropy {
  at::Tensor input;
  at::Tensor target;
  at::Tensor weight;
  std::int64_t reduction;
  std::int64_t ignore_index;
  double smoothing;
  c10::ScalarType type;
  at::Tensor lse;
  at::Tensor total_weight;

  bool by_class() const {
    return !target.is_floating_point();
  }
};

// PyTorch's parts, in the loss' dtype.
at::Tensor composite(const Entropy& c) {
  return at::compositeimplicitautograd::cross_entropy_loss(
      c.input.to(c.type),
      c.target,
      c.weight.defined() ? OptTensor(c.weight.to(c.type)) : OptTensor(),
      c.reduction,
      c.ignore_index,
      c.smoothing);
}

// One target per sample, or a distribution; classes are dimension 1.
bool fits_entropy(const Entropy& c) {
  const at::Tensor& x = c.input;
  if (!is_float(x) || x.dim() < 2 || !on_device(x, c.target, c.weight) ||
      c.target.numel() == 0 || c.reduction < 0 || c.reduction > 2 ||
      !(c.smoothing >= 0 && c.smoothing <= 1) ||
      (c.weight.defined() &&
       ((c.weight.scalar_type() != x.scalar_type() &&
         c.weight.scalar_type() != c.type) ||
        c.weight.dim() != 1 || c.weight.size(0) != x.size(1)))) {
    return false;
  }
  if (!c.by_class()) {
    // The parts smooth the target in its own dtype.
    return (c.target.scalar_type() == c.type ||
            (c.target.scalar_type() == x.scalar_type() && c.smoothing == 0)) &&
           c.target.sizes() == x.sizes() && c.ignore_index < 0;
  }
  at::DimVector samples(x.sizes());
  samples.erase(samples.begin() + 1);
  return c.target.scalar_type() == at::kLong && c.target.sizes() == samples;
}

template <class Attrs>
Attrs attributes(const Entropy& c) {
  Attrs attrs{};
  attrs.ignore_index = c.ignore_index;
  attrs.label_smoothing = c.smoothing;
  attrs.reduction = static_cast<std::uint32_t>(c.reduction);
  return attrs;
}

template <std::uint32_t kKind, std::uint32_t kIndex, std::uint32_t kProbability>
NativeSite& site_of(const Entropy& c) {
  static NativeSite index(kName, kKind, kIndex);
  static NativeSite probability(kName, kKind, kProbability);
  return c.by_class() ? index : probability;
}
constexpr auto forward_site = &site_of<
    NPU_KIND_CROSS_ENTROPY,
    NPU_CROSS_ENTROPY_INDEX,
    NPU_CROSS_ENTROPY_PROBABILITY>;
constexpr auto backward_site = &site_of<
    NPU_KIND_CROSS_ENTROPY_GRAD,
    NPU_CROSS_ENTROPY_GRAD_INDEX,
    NPU_CROSS_ENTROPY_GRAD_PROBABILITY>;

// Undefined where the driver declines; fills what backward needs.
at::Tensor run_forward(Entropy& c) {
  NativeSite& site = forward_site(c);
  if (!fits_entropy(c) ||
      site.wants(c.input, c.target, c.weight) != NPU_REASON_NONE) {
    return {};
  }
  const at::Tensor& x = c.input;
  const c10::ScalarType wide = at::toOpMathType(x.scalar_type());
  at::DimVector samples(x.sizes());
  samples.erase(samples.begin() + 1);
  const auto made = [&](at::IntArrayRef sizes, c10::ScalarType type) {
    return make_empty(sizes, type, x.device().index());
  };
  at::Tensor out = made(c.reduction == 0 ? samples : at::DimVector(), c.type);
  c.lse = made(samples, wide);
  c.total_weight = made({}, wide);
  auto attrs = attributes<npu_cross_entropy_attrs>(c);
  // A target out of range gets the error of PyTorch's parts.
  return run_checked<build::cross_entropy>(
             site, out, c.lse, c.total_weight, x, c.target, c.weight, attrs) ==
                 NPU_REASON_NONE
             ? out
             : at::Tensor();
}

at::Tensor run_backward(const Entropy& c, const at::Tensor& grad) {
  NativeSite& site = backward_site(c);
  const npu_reason why = site.wants(c.input, c.target, c.weight, grad);
  if (why != NPU_REASON_NONE || grad.scalar_type() != c.type) {
    return {};
  }
  at::Tensor out = make_empty(
      c.input.sizes(), c.input.scalar_type(), c.input.device().index());
  auto attrs = attributes<npu_cross_entropy_grad_attrs>(c);
  return run<build::cross_entropy_grad>(
             site,
             out,
             grad,
             c.input,
             c.target,
             c.weight,
             c.lse,
             c.total_weight,
             attrs) == NPU_REASON_NONE
             ? out
             : at::Tensor();
}

// Through PyTorch's parts: declined, or to be differentiated again.
at::Tensor differentiate(Entropy c, const at::Tensor& grad, bool again) {
  const at::AutoGradMode enable(true);
  // The forward call has settled the dtypes.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKey::AutocastPrivateUse1);
  c.input = again ? c.input : c.input.detach().requires_grad_();
  return torch::autograd::grad(
      {composite(c)}, {c.input}, {grad}, again, /*create_graph=*/again)[0];
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& input,
      const Entropy& call,
      const at::Tensor& out) {
    ctx->save_for_backward(
        {input, call.target, call.weight, call.lse, call.total_weight});
    ctx->saved_data["reduction"] = call.reduction;
    ctx->saved_data["ignore_index"] = call.ignore_index;
    ctx->saved_data["smoothing"] = call.smoothing;
    ctx->saved_data["type"] = call.type;
    return out.detach();
  }

  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Entropy call{
        saved[0],
        saved[1],
        saved[2],
        ctx->saved_data["reduction"].toInt(),
        ctx->saved_data["ignore_index"].toInt(),
        ctx->saved_data["smoothing"].toDouble(),
        ctx->saved_data["type"].toScalarType(),
        saved[3],
        saved[4]};
    at::Tensor grad_in;
    const bool again = at::GradMode::is_enabled();
    if (!again) {
      grad_in = run_backward(call, grads[0]);
    }
    if (!grad_in.defined()) {
      grad_in = differentiate(call, grads[0], again);
    }
    return {grad_in, at::Tensor(), at::Tensor()};
  }
};

// Plain tensors, and no mode or transform is active.
bool is_plain(const at::Tensor& tensor) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kOthers(
      {DispatchKey::Python,
       DispatchKey::FuncTorchBatched,
       DispatchKey::FuncTorchGradWrapper,
       DispatchKey::Functionalize,
       DispatchKey::Conjugate,
       DispatchKey::Negative,
       DispatchKey::ZeroTensor});
  return !tensor.defined() ||
         (!tensor.key_set().has_any(kOthers) && !tensor._fw_grad(0).defined());
}

at::Tensor cross_entropy(
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction,
    c10::SymInt ignore_index,
    double smoothing) {
  const at::Tensor& w = or_undefined(weight);
  if (c10::impl::TorchDispatchModeTLS::any_modes_set() || !is_plain(self) ||
      !is_plain(target) || !is_plain(w) || target.requires_grad() ||
      (w.defined() && w.requires_grad())) {
    return at::compositeimplicitautograd::cross_entropy_loss_symint(
        self, target, weight, reduction, ignore_index, smoothing);
  }
  Entropy call{
      self,
      target,
      w,
      reduction,
      ignore_index.guard_int(__FILE__, __LINE__),
      smoothing,
      autocast_enabled() && is_half(self) ? at::kFloat : self.scalar_type(),
      {},
      {}};
  at::Tensor out;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    out = run_forward(call);
  }
  if (!out.defined()) {
    return at::compositeimplicitautograd::cross_entropy_loss_symint(
        self, target, weight, reduction, ignore_index, smoothing);
  }
  return at::GradMode::is_enabled() && self.requires_grad()
             ? CrossEntropy::apply(self, call, out)
             : out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("cross_entropy_loss", TORCH_FN(cross_entropy));
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cross_entropy_loss", TORCH_FN(cross_entropy));
}

}  // namespace npu

// SPDX-License-Identifier: Apache-2.0
// CTC and the margin losses.
#include <ATen/core/Reduction.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>

#include "aten/core/fill.h"
#include "aten/ladder/check_policy.h"
#include "aten/ops/loss/losses.h"
#include "attempts/nn.h"
#include "driver/build_call.h"

namespace npu::ops {

// ---- ctc ----

namespace {

bool is_single_or_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ||
         tensor.scalar_type() == at::kDouble;
}

struct Lengths {
  at::IntArrayRef input;
  at::IntArrayRef target;

  std::int64_t longest_target() const {
    return target.empty() ? 0 : *std::max_element(target.begin(), target.end());
  }
  // Every sample inside what there is.
  bool fit(const at::Tensor& log_probs, const at::Tensor& targets) const {
    const auto batch = static_cast<std::size_t>(log_probs.size(1));
    if (input.size() != batch || target.size() != batch) {
      return false;
    }
    std::int64_t total = 0;
    for (std::size_t n = 0; n < batch; ++n) {
      if (input[n] < 0 || input[n] > log_probs.size(0) || target[n] < 0) {
        return false;
      }
      total += target[n];
    }
    return targets.dim() == 1 ? targets.size(0) == total
                              : targets.size(0) == log_probs.size(1) &&
                                    targets.size(1) >= longest_target();
  }
};

npu_reason check_ctc(
    const at::Tensor& log_probs,
    const at::Tensor& targets,
    const Lengths& lengths,
    std::int64_t blank) {
  if (!is_single_or_double(log_probs) || !is_index(targets)) {
    return NPU_REASON_DTYPE;
  }
  const bool fits =
      log_probs.dim() == 3 && (targets.dim() == 1 || targets.dim() == 2) &&
      targets.numel() != 0 && blank >= 0 && blank < log_probs.size(2) &&
      lengths.fit(log_probs, targets);
  return fits ? npu_reason{NPU_REASON_NONE} : kLeaveToCpu;
}

at::Tensor on_device_of(const at::Tensor& like, at::IntArrayRef values) {
  return at::tensor(values, at::kLong).to(like.device());
}

}  // namespace

npu_reason ctc(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& log_probs,
    const at::Tensor& targets,
    at::IntArrayRef input_lengths,
    at::IntArrayRef target_lengths,
    std::int64_t blank) {
  const Lengths lengths{input_lengths, target_lengths};
  if (const npu_reason why = check_ctc(log_probs, targets, lengths, blank)) {
    return why;
  }
  npu_ctc_attrs attrs{.blank = blank};
  const std::int64_t batch = log_probs.size(1);
  set_output(out, 0, {batch}, log_probs);
  set_output(
      out,
      1,
      {batch, log_probs.size(0), 2 * lengths.longest_target() + 1},
      log_probs);
  const at::Tensor in = on_device_of(log_probs, input_lengths);
  const at::Tensor labels = on_device_of(log_probs, target_lengths);
  return run<build::ctc>(
      site, out.at(0), out.at(1), log_probs, targets, in, labels, attrs);
}

npu_reason ctc_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& log_probs,
    const at::Tensor& targets,
    at::IntArrayRef input_lengths,
    at::IntArrayRef target_lengths,
    const at::Tensor& losses,
    const at::Tensor& alpha,
    std::int64_t blank,
    bool zero_infinity) {
  const Lengths lengths{input_lengths, target_lengths};
  if (const npu_reason why = check_ctc(log_probs, targets, lengths, blank)) {
    return why;
  }
  if (grad.dim() != 1 || losses.dim() != 1 || alpha.dim() != 3 ||
      alpha.size(2) != 2 * lengths.longest_target() + 1) {
    return kLeaveToCpu;
  }
  npu_ctc_grad_attrs attrs{.blank = blank, .zero_infinity = zero_infinity};
  set_output(out, 0, log_probs.sizes(), log_probs);
  const at::Tensor in = on_device_of(log_probs, input_lengths);
  const at::Tensor labels = on_device_of(log_probs, target_lengths);
  return run<build::ctc_grad>(
      site,
      out.at(0),
      grad,
      log_probs,
      targets,
      in,
      labels,
      losses,
      alpha,
      attrs);
}

// ---- margins ----

namespace {

at::IntArrayRef sample_sizes(const at::Tensor& self, std::int64_t reduction) {
  return reduction == 0 && self.dim() == 2 ? self.sizes().slice(0, 1)
                                           : at::IntArrayRef();
}

// A margin loss of scores (classes) or (samples, classes), and its gradient.
struct Margin {
  const at::Tensor& self;
  const at::Tensor& target;
  const at::Tensor& weight;
  std::int64_t reduction;
  std::int64_t p = 1;
  double margin = 1;

  template <class Attrs>
  Attrs attrs() const {
    Attrs out{};
    out.p = p;
    out.margin = margin;
    out.reduction = static_cast<std::uint32_t>(reduction);
    return out;
  }
  npu_reason check() const {
    const bool computes =
        is_single_or_double(self) && target.scalar_type() == at::kLong;
    const bool only_fills =
        has_no_samples() && self.is_floating_point() && is_index(target);
    return first_failed(
        {{computes || only_fills, NPU_REASON_DTYPE},
         {(self.dim() == 1 || self.dim() == 2) && self.size(-1) != 0 &&
              is_reduction(reduction) && on_device(target),
          kLeaveToCpu}});
  }
  // PyTorch's own kernel leaves the loss of no samples unwritten, so these
  // calls stay here on every driver (`anyway` in ops/aten/nn.yaml).
  bool has_no_samples() const {
    return self.numel() == 0;
  }
  // A chip without the operator leaves calls of no samples to its CPU too.
  static void judge(NativeSite& site) {
    if (site.caps() == nullptr) {
      ladder::check_policy(site.entry());
    }
  }
  // `is_target` is an output of multilabel margin, undefined else.
  npu_reason run_into(NativeSite& site, Outputs& out, bool is_target) const {
    const at::IntArrayRef sizes = sample_sizes(self, reduction);
    const c10::ScalarType type = self.scalar_type();
    if (!is_ready(out.at(0), sizes, type, {&self, &weight}) ||
        !is_ready(out.at(1), target.sizes(), type, {&self, &weight})) {
      return kLeaveToCpu;
    }
    set_output(out, 0, sizes, self);
    if (is_target) {
      set_output(out, 1, target.sizes(), self);
    }
    if (has_no_samples()) {
      judge(site);
      if (reduction != at::Reduction::None) {
        constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
        npu::fill(out.at(0), reduction == at::Reduction::Mean ? kNone : 0.0);
      }
      return NPU_REASON_NONE;
    }
    auto given = attrs<npu_margin_attrs>();
    return run<build::margin>(
        site, out.at(0), out.at(1), self, target, weight, given);
  }
  npu_reason run_grad(
      NativeSite& site,
      Outputs& out,
      const at::Tensor& grad,
      const at::Tensor& is_target) const {
    if (!on_device(grad) || grad.sizes() != sample_sizes(self, reduction) ||
        !is_ready(
            out.at(0), self.sizes(), self.scalar_type(), {&self, &grad})) {
      return kLeaveToCpu;
    }
    set_output(out, 0, self.sizes(), self);
    if (has_no_samples()) {
      judge(site);
      return NPU_REASON_NONE;
    }
    auto given = attrs<npu_margin_grad_attrs>();
    return run<build::margin_grad>(
        site, out.at(0), grad, self, target, weight, is_target, given);
  }
};

npu_reason check_multi_margin(const Margin& loss, const c10::Scalar& p) {
  if (const npu_reason why = loss.check()) {
    return why;
  }
  const at::Tensor& self = loss.self;
  const std::int64_t samples = self.dim() == 2 ? self.size(0) : 1;
  const bool order =
      p.isIntegral(false) && (p.toLong() == 1 || p.toLong() == 2);
  const bool fits =
      order && loss.target.numel() == samples &&
      loss.target.dim() == self.dim() - 1 &&
      is_parameter(loss.weight, self, self.sizes().slice(self.dim() - 1));
  return fits ? npu_reason{NPU_REASON_NONE} : kLeaveToCpu;
}

npu_reason check_multilabel(const Margin& loss) {
  const npu_reason why = loss.check();
  return why == NPU_REASON_NONE && loss.target.sizes() != loss.self.sizes()
             ? kLeaveToCpu
             : why;
}

std::int64_t order_of(const c10::Scalar& p) {
  return p.isIntegral(false) ? p.toLong() : 0;
}

}  // namespace

npu_reason multi_margin(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const c10::Scalar& p,
    const c10::Scalar& margin,
    const at::Tensor& weight,
    std::int64_t reduction) {
  const Margin loss{
      self, target, weight, reduction, order_of(p), margin.toDouble()};
  const npu_reason why = check_multi_margin(loss, p);
  return why == NPU_REASON_NONE ? loss.run_into(site, out, false) : why;
}

npu_reason multi_margin_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const c10::Scalar& p,
    const c10::Scalar& margin,
    const at::Tensor& weight,
    std::int64_t reduction) {
  const Margin loss{
      self, target, weight, reduction, order_of(p), margin.toDouble()};
  const npu_reason why = check_multi_margin(loss, p);
  return why == NPU_REASON_NONE ? loss.run_grad(site, out, grad, {}) : why;
}

npu_reason multilabel_margin(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction) {
  const Margin loss{self, target, or_undefined({}), reduction};
  const npu_reason why = check_multilabel(loss);
  return why == NPU_REASON_NONE ? loss.run_into(site, out, true) : why;
}

npu_reason multilabel_margin_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    const at::Tensor& is_target) {
  const Margin loss{self, target, or_undefined({}), reduction};
  if (const npu_reason why = check_multilabel(loss)) {
    return why;
  }
  return is_target.sizes() == self.sizes()
             ? loss.run_grad(site, out, grad, is_target)
             : kLeaveToCpu;
}

}  // namespace npu::ops

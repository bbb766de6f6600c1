// SPDX-License-Identifier: Apache-2.0
// Kinds loss and loss_grad, elementwise losses, and the family's table.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include "kernels/loss.h"

#include <cmath>

namespace npu::host {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// log(1 + exp(-x)), without overflow.
double softplus_of_minus(double x) {
  return std::log1p(std::exp(-std::abs(x))) + (x < 0 ? -x : 0);
}

double xlogx(double x) {
  return x == 0 ? 0 : x * std::log(x);
}

// One element: x input, t target, pos the weight of positive examples, a the
// kind's parameter.
double loss_of(std::uint32_t code, double x, double t, double pos, double a) {
  const double z = std::abs(x - t);
  switch (code) {
    case NPU_LOSS_MSE:
      return z * z;
    case NPU_LOSS_L1:
      return z;
    case NPU_LOSS_SMOOTH_L1:
      return z < a ? 0.5 * z * z / a : z - 0.5 * a;
    case NPU_LOSS_HUBER:
      return z <= a ? 0.5 * z * z : a * (z - 0.5 * a);
    case NPU_LOSS_BCE:  // logarithms are limited to -100
      return (t - 1) * std::fmax(std::log1p(-x), -100.0) -
             t * std::fmax(std::log(x), -100.0);
    case NPU_LOSS_BCE_LOGITS:
      return (1 - t) * x + (1 + (pos - 1) * t) * softplus_of_minus(x);
    case NPU_LOSS_KL:
      return xlogx(t) - t * x;
    case NPU_LOSS_KL_LOG_TARGET:
      return std::exp(t) * (t - x);
    default:  // soft_margin
      return std::log1p(std::exp(-x * t));
  }
}

// Its derivative by x.
double slope_of(std::uint32_t code, double x, double t, double pos, double a) {
  const double z = x - t;
  switch (code) {
    case NPU_LOSS_MSE:
      return 2 * z;
    case NPU_LOSS_L1:
      return z > 0 ? 1 : z < 0 ? -1 : z;
    case NPU_LOSS_SMOOTH_L1:
      return z <= -a ? -1 : z >= a ? 1 : z / a;
    case NPU_LOSS_HUBER:
      return z <= -a ? -a : z >= a ? a : z;
    case NPU_LOSS_BCE:
      return z / std::fmax((1 - x) * x, 1e-12);
    case NPU_LOSS_BCE_LOGITS:
      return (1 - t + pos * t) * sigmoid(x) - pos * t;
    case NPU_LOSS_KL:
      return -t;
    case NPU_LOSS_KL_LOG_TARGET:
      return -std::exp(t);
    default: {  // soft_margin
      return -t * sigmoid(-x * t);
    }
  }
}

// The logarithm of what is not in [0, 1] has no meaning here.
template <class T>
npu_status check_probabilities(const Loaded<T>& values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(values[i]);
    if (!(value >= 0 && value <= 1)) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: loss.bce: element %lld is %g, which is not "
          "between 0 and 1",
          static_cast<long long>(i),
          value);
    }
  }
  return NPU_OK;
}

npu_status loss_run(const npu_call& call) {
  const npu_loss_args args = npu_loss_unpack(&call);
  const auto reduction = static_cast<Reduction>(args.attrs.reduction);
  const std::int64_t n = args.in->numel;
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<T> target(args.target);
    const Loaded<T> weight(args.weight);
    const Loaded<T> pos(args.pos_weight);
    const Stored<T> out(args.out);
    const auto element = [&](std::int64_t i) {
      return weight.at(i, 1) *
             loss_of(call.code, in[i], target[i], pos.at(i, 1), args.attrs.a);
    };
    npu_status status = loaded(in, target, weight, pos);
    if (status == NPU_OK && call.code == NPU_LOSS_BCE) {
      status = check_probabilities(in, n);
      status = status ? status : check_probabilities(target, n);
    }
    if (status != NPU_OK) {
      return status;
    }
    if (reduction == Reduction::kNone) {
      status =
          for_each_item(n, 8, [&](std::int64_t i) { out.set(i, element(i)); });
    } else {
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        sum += element(i);
      }
      const bool mean = reduction == Reduction::kMean;
      out.set(0, mean ? sum / static_cast<double>(n) : sum);
    }
    return finish(status, in, target, weight, pos, out);
  });
}

npu_status loss_grad_run(const npu_call& call) {
  const npu_loss_grad_args args = npu_loss_grad_unpack(&call);
  const auto reduction = static_cast<Reduction>(args.attrs.reduction);
  const std::int64_t n = args.in->numel;
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> in(args.in);
    const Loaded<T> target(args.target);
    const Loaded<T> weight(args.weight);
    const Loaded<T> pos(args.pos_weight);
    const Stored<T> out(args.grad_in);
    const double scale =
        reduction == Reduction::kMean ? 1 / static_cast<double>(n) : 1;
    // A loss that was reduced has one gradient for all.
    const bool one = args.grad_out->numel == 1;
    const npu_status status = for_each_item(n, 8, [&](std::int64_t i) {
      const double slope =
          slope_of(call.code, in[i], target[i], pos.at(i, 1), args.attrs.a);
      out.set(i, slope * scale * grad[one ? 0 : i] * weight.at(i, 1));
    });
    return finish(status, grad, in, target, weight, pos, out);
  });
}

npu_status loss_caps(std::uint32_t code, npu_op_caps& out) {
  if (code > NPU_LOSS_SOFT_MARGIN) {
    return NPU_E_UNSUPPORTED;
  }
  float_caps(out, 6);
  return NPU_OK;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_NLL, nll_caps, nullptr, nll_run},
    {NPU_KIND_NLL_GRAD, nll_grad_caps, nullptr, nll_grad_run},
    {NPU_KIND_CROSS_ENTROPY, cross_entropy_caps, nullptr, cross_entropy_run},
    {NPU_KIND_CROSS_ENTROPY_GRAD,
     cross_entropy_grad_caps,
     nullptr,
     cross_entropy_grad_run},
    {NPU_KIND_CTC, ctc_caps, nullptr, ctc_run},
    {NPU_KIND_CTC_GRAD, ctc_grad_caps, nullptr, ctc_grad_run},
    {NPU_KIND_LOSS, loss_caps, nullptr, loss_run},
    {NPU_KIND_LOSS_GRAD, loss_caps, nullptr, loss_grad_run},
    {NPU_KIND_MARGIN, margin_caps, nullptr, margin_run},
    {NPU_KIND_MARGIN_GRAD, margin_grad_caps, nullptr, margin_grad_run},
};

}  // namespace

const std::span<const KernelRow> kLossKernels = kRows;

}  // namespace npu::host
